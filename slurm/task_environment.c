#define _GNU_SOURCE
#include "slurm/task_environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// As in shm/labels.cpp and shm/board.hpp.
static const char kValueCharacters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/:@";
enum { kLongestLabels = 103 };

/// Whether a part of `list` between separators begins with `start`, and is nothing else where
/// `whole`.
static int has_part(const char* list, const char* separators, const char* start, int whole) {
  const size_t length = strlen(start);
  while (*list != '\0') {
    const size_t part = strcspn(list, separators);
    if (strncmp(list, start, length) == 0 && (whole ? part == length : part >= length)) return 1;
    list += part + (list[part] != '\0');
  }
  return 0;
}

static char* joined(const char* first, char between, const char* second) {
  char* text = NULL;
  const int length = *second == '\0' ? asprintf(&text, "%s", first)
                                     : asprintf(&text, "%s%c%s", first, between, second);
  return length < 0 ? NULL : text;
}

char* sluice_preload_once(const char* list, const char* library) {
  if (list == NULL) list = "";
  return has_part(list, ": ", library, 1) ? strdup(list) : joined(library, ':', list);
}

char* sluice_label_user(const char* labels, const char* name) {
  if (labels == NULL) labels = "";
  const int valid = *name != '\0' && name[strspn(name, kValueCharacters)] == '\0';
  const size_t length = strlen(labels) + strlen(",user=") + strlen(name) - (*labels == '\0');
  if (!valid || length > kLongestLabels || has_part(labels, ",", "user=", 0)) return strdup(labels);
  char* label = joined("user", '=', name);
  char* all = label == NULL || *labels == '\0' ? label : joined(labels, ',', label);
  if (all != label) free(label);
  return all;
}
