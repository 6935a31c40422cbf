#pragma once
#include <stddef.h>

/// The site's file of ceilings: the highest priority that a job may ask for. No other file knows
/// its format.
///
///   # what      name      priority
///   default               0
///   partition   serving   1
///   qos         urgent    2
///   account     vision    1
///
/// A job has the lowest of the ceilings that its partition, its QOS and its account have. If none
/// of the three is in the file, it has the default. A file without a default allows such jobs
/// nothing above 0.

struct sluice_job_names {
  const char* partition;  ///< May be NULL, as the others.
  const char* qos;
  const char* account;
};

struct sluice_ceiling {
  int priority;     ///< -1 if the file cannot be used.
  char rule[128];   ///< The line that decided, as "account vision", for messages.
  char fault[256];  ///< What is wrong with the file, and where.
};

struct sluice_ceiling sluice_find_ceiling(const char* file, const struct sluice_job_names* job);

/// A priority as users write it: a whole number from 0 to 255. Returns -1 for any other text, and
/// for NULL.
int sluice_parse_priority(const char* text);
