// The sizes of --sluice-memory are those of the interposer.
#include "shm/memory_limit.hpp"

#include <gtest/gtest.h>

#include <string>

extern "C" {
#include "slurm/memory_limit.h"
}

namespace sluice::test {
namespace {

// Prevents: a job that is started with a limit which its programs cannot read, and so has none; or
// one that is refused for a good limit.
TEST(SlurmMemoryLimit, IsWhatTheInterposerReads) {
  for (const char* const number : {"0",
                                   "1",
                                   "2",
                                   "16",
                                   "20",
                                   "17",
                                   "1024",
                                   "1023.999",
                                   "1.5",
                                   "0.999",
                                   "1.",
                                   ".5",
                                   "1.2345",
                                   "16.001",
                                   "15.999",
                                   "1073741824",
                                   "1073742",
                                   "999999999999",
                                   "9999999999999",
                                   "-1",
                                   ""}) {
    for (const char* const unit : {"", "B", "kB", "KB", "KiB", "MB", "MiB", "GB", "GiB", "TB",
                                   "TiB", "gib", " GiB", "GiB "}) {
      const std::string text = std::string(number) + unit;
      EXPECT_EQ(sluice_is_memory_limit(text.c_str()) == 1,
                shm::parse_memory_limit(text).has_value())
          << text;
    }
  }
  EXPECT_EQ(sluice_is_memory_limit("none"), 1);
  EXPECT_EQ(sluice_is_memory_limit("nothing"), 0);
}

}  // namespace
}  // namespace sluice::test
