#pragma once
#include <stdint.h>

/// Lets the programs of a job ask the node service for this priority at most, whatever is in their
/// environment: a file that the service reads, in `node`, its folder. A job that has a higher limit
/// keeps it: one of its steps was allowed it. Needs root. Returns 0, or -1 and errno.
int sluice_limit_job(const char* node, uint32_t job_id, int priority);
