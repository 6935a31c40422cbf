#include "slurm/memory_limit.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char* name;
  unsigned long long bytes;
} kUnits[] = {{"kB", 1000},       {"KiB", 1ULL << 10}, {"MB", 1000000},       {"MiB", 1ULL << 20},
              {"GB", 1000000000}, {"GiB", 1ULL << 30}, {"TB", 1000000000000}, {"TiB", 1ULL << 40}};

int sluice_is_memory_limit(const char* text) {
  static const char kDigits[] = "0123456789";
  const unsigned long long least = 1ULL << 30;
  const unsigned long long most = 1ULL << 44;
  if (strcmp(text, "none") == 0) return 1;
  const size_t whole = strspn(text, kDigits);
  const char* rest = text + whole;
  size_t behind = 0;
  if (*rest == '.') {
    behind = strspn(rest + 1, kDigits);
    if (behind == 0 || behind > 3) return 0;
  }
  const char* const fraction = rest + 1;
  if (behind != 0) rest += 1 + behind;
  if (whole == 0 || whole > 12) return 0;
  for (size_t i = 0; i < sizeof(kUnits) / sizeof(kUnits[0]); ++i) {
    if (strcmp(rest, kUnits[i].name) != 0) continue;
    const unsigned long long number = strtoull(text, NULL, 10);
    if (number > most / kUnits[i].bytes) return 0;
    unsigned long long thousandths = 0;
    for (size_t digit = 0; digit < 3; ++digit) {
      thousandths =
          thousandths * 10 + (digit < behind ? (unsigned long long)(fraction[digit] - '0') : 0);
    }
    const unsigned long long bytes =
        number * kUnits[i].bytes + thousandths * kUnits[i].bytes / 1000;
    return bytes >= least && bytes <= most;
  }
  return 0;
}
