#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/output.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::base {
namespace {

// Prevents: a killed process loses the last lines of its log.
TEST(LineFile, TheKernelHasEachLineWhenWriteReturns) {
  const test::TempFolder folder;
  LineFile file(folder.file("log"));
  file.write("one\n");
  EXPECT_EQ(test::read_file(folder.file("log")), "one\n");
}

// Prevents: a run on a full disk succeeds without its results.
TEST(LineFile, AFullDiskAndAMissingFolderAreErrors) {
  LineFile full("/dev/full");
  EXPECT_THROW(full.write("one\n"), RunError);
  try {
    LineFile("/no/such/folder/log");
    FAIL() << "created a file in a missing folder";
  } catch (const RunError& error) {
    EXPECT_EQ(std::string(error.what()).find("/no/such/folder/log: cannot be created"), 0U)
        << error.what();
  }
}

}  // namespace
}  // namespace sluice::base
