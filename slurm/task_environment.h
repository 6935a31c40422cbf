#pragma once

/// What a task's environment variables become. The results are for free(); NULL if there is no
/// memory.

/// `list`, which may be NULL, with `library` in front. The same list if the library is in it: the
/// tasks of a nested srun inherit what the tasks of the job have.
char* sluice_preload_once(const char* list, const char* library);

/// `labels`, which may be NULL, with the label user=`name`. The same labels if they have a user, or
/// if the longer text would be refused: the interposer drops labels of more than 103 characters,
/// and all labels if one is invalid.
char* sluice_label_user(const char* labels, const char* name);
