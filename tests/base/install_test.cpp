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

// Prevents: a file that is installed in one place and looked for in another.
TEST(Install, HasItsFilesWhereCMakePutsThem) {
  const Install install("/r");
  EXPECT_EQ(install.program("sluice-controller"), "/r/libexec/sluice/sluice-controller");
  EXPECT_EQ(install.subcommand("exec"), "/r/libexec/sluice/sluice-exec");
  EXPECT_EQ(install.interposer(), "/r/lib/sluice/libsluice_intercept.so");
  EXPECT_EQ(install.recordings(), "/r/share/sluice/recordings");
  EXPECT_EQ(install.python(), "/r/share/sluice/python");
  EXPECT_EQ(install.engine("torch"), "/r/lib/sluice/libsluice_serve_torch.so");
  EXPECT_EQ(install.simgpu_folder(), "/r/lib/sluice/simgpu");
}

}  // namespace
}  // namespace sluice::base
