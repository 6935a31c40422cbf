#include "slurm/give.h"

#include <stdlib.h>
#include <string.h>

int sluice_is_give(const char* text) {
  static const char kDigits[] = "0123456789";
  const long most = 500;  // in 1/1000
  if (strcmp(text, "0") == 0) return 1;
  const size_t whole = strspn(text, kDigits);
  if (whole == 0) return 0;
  const char* rest = text + whole;
  long tenth = 0;
  if (*rest == '.') {
    if (strspn(rest + 1, kDigits) != 1) return 0;
    tenth = rest[1] - '0';
    rest += 2;
  }
  const long percent = strtol(text, NULL, 10);  // LONG_MAX for more
  return strcmp(rest, "%") == 0 && percent <= most / 10 && percent * 10 + tenth <= most;
}
