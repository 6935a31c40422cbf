#include "slurm/job_limit.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int sluice_limit_job(const char* node, uint32_t job_id, int priority) {
  char path[256];
  char text[16] = "";
  int before = -1;
  snprintf(path, sizeof(path), "%s/ceilings", node);
  mkdir(path, 0755);
  snprintf(path, sizeof(path), "%s/ceilings/job_%u", node, job_id);
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file < 0) return -1;
  // Two steps of a job may begin at one time.
  int done = flock(file, LOCK_EX);
  if (done == 0 && pread(file, text, sizeof(text) - 1, 0) > 0) sscanf(text, "%d", &before);
  if (done == 0 && priority > before) {
    // Of one length, so that nobody reads a part of a number.
    snprintf(text, sizeof(text), "%3d\n", priority);
    done = pwrite(file, text, 4, 0) == 4 ? 0 : -1;
  }
  close(file);
  return done;
}
