#include "slurm/ceilings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kLineSize = 512, kHighest = 255 };
static const char kBlanks[] = " \t\r\n";

int sluice_parse_priority(const char* text) {
  if (text == NULL || *text == '\0' || strlen(text) > 3 || text[strspn(text, "0123456789")] != '\0')
    return -1;
  const int value = atoi(text);
  return value <= kHighest ? value : -1;
}

/// The name that a rule of this kind is about; NULL if there is no such kind.
static const char* const* name_of(const char* kind, const struct sluice_job_names* job) {
  if (strcmp(kind, "partition") == 0) return &job->partition;
  if (strcmp(kind, "qos") == 0) return &job->qos;
  if (strcmp(kind, "account") == 0) return &job->account;
  return NULL;
}

/// Reads one line. Returns false if it is no rule. Comments and empty lines are fine.
static int read_line(char* line, const struct sluice_job_names* job, int* otherwise,
                     struct sluice_ceiling* found) {
  line[strcspn(line, "#")] = '\0';
  char* rest = NULL;
  const char* kind = strtok_r(line, kBlanks, &rest);
  if (kind == NULL) return 1;
  const int is_default = strcmp(kind, "default") == 0;
  const char* name = is_default ? NULL : strtok_r(NULL, kBlanks, &rest);
  const int priority = sluice_parse_priority(strtok_r(NULL, kBlanks, &rest));
  const char* const* own = name_of(kind, job);
  if (priority < 0 || strtok_r(NULL, kBlanks, &rest) != NULL || (!is_default && own == NULL))
    return 0;
  if (is_default) {
    *otherwise = priority;
  } else if (*own != NULL && strcmp(*own, name) == 0 &&
             (found->priority < 0 || priority < found->priority)) {
    found->priority = priority;
    snprintf(found->rule, sizeof(found->rule), "%s %s", kind, name);
  }
  return 1;
}

struct sluice_ceiling sluice_find_ceiling(const char* file, const struct sluice_job_names* job) {
  struct sluice_ceiling found = {.priority = -1};
  FILE* stream = fopen(file, "re");
  if (stream == NULL) {
    snprintf(found.fault, sizeof(found.fault), "%s cannot be read: %s", file, strerror(errno));
    return found;
  }
  char line[kLineSize];
  int otherwise = 0;
  for (int number = 1; fgets(line, sizeof(line), stream) != NULL; ++number) {
    if (read_line(line, job, &otherwise, &found)) continue;
    found.priority = -1;
    snprintf(found.fault, sizeof(found.fault),
             "%s:%d: not 'default N', 'partition NAME N', 'qos NAME N' or 'account NAME N' with N "
             "from 0 to 255",
             file, number);
    break;
  }
  fclose(stream);
  if (found.priority < 0 && found.fault[0] == '\0') {
    found.priority = otherwise;
    strcpy(found.rule, "default");
  }
  return found;
}
