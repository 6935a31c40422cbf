#include "base/install.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/child.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::base {
namespace {

namespace fs = std::filesystem;

// Prevents: programs of one folder that look for the others in the wrong place. Runs itself as a
// program of each.
TEST(Install, IsFoundFromBothFoldersOfPrograms) {
  if (const char* root = std::getenv("SLUICE_TEST_ROOT")) {
    EXPECT_EQ(Install::of_this_program().root(), root);
    return;
  }
  for (const char* folder : {"bin", "libexec/sluice"}) {
    const test::TempFolder root;
    fs::create_directories(root.path() / folder);
    const fs::path program = root.path() / folder / "program";
    fs::copy_file("/proc/self/exe", program);
    const Captured run = capture({program, "--gtest_filter=Install.*"},
                                 {"SLUICE_TEST_ROOT=" + root.path().string()});
    EXPECT_EQ(run.exit_code, 0) << folder << run.out;
  }
}

}  // namespace
}  // namespace sluice::base
