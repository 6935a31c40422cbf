#include "base/line_file.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::base {
namespace {

// Prevents: the last lines of a log that are lost with a killed process.
TEST(LineFile, TheKernelHasEachLineWhenWriteReturns) {
  const test::TempFolder folder;
  LineFile file(folder.file("log"));
  file.write("one\n");
  EXPECT_EQ(test::read_file(folder.file("log")), "one\n");
}

// Prevents: a run on a full disk that ends well and without its results.
TEST(LineFile, AFullDiskAndAMissingFolderAreErrors) {
  LineFile full("/dev/full");
  EXPECT_THROW(full.write("one\n"), RunError);
  EXPECT_THROW(LineFile("/no/such/folder/log"), RunError);
}

}  // namespace
}  // namespace sluice::base
