// The ceilings that root writes for single cgroups, as Slurm's plugin does for jobs.
#include "controller/ceiling_files.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_folder.hpp"

namespace sluice::controller {
namespace {

class CeilingFiles : public testing::Test {
 protected:
  void limit(const std::string& name, const std::string& text) const {
    static_cast<void>(folder_.write(name, text));
  }
  [[nodiscard]] std::optional<int> of(const std::string& cgroups) const {
    return ceiling_of(cgroups, folder_.path().string());
  }
  test::TempFolder folder_;
};

// Prevents: the limit of a job holds for another one, or only where the machine has cgroup v2.
TEST_F(CeilingFiles, HoldForTheirCgroupAndAllInside) {
  limit("job_7", "  2\n");
  EXPECT_EQ(of("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n"), 2);
  EXPECT_EQ(of("4:freezer:/slurm/uid_5/job_7\n1:name=systemd:/\n0::/\n"), 2);
  EXPECT_EQ(of("0::/system.slice/slurmstepd.scope/job_70/step_0\n"), std::nullopt);
  EXPECT_EQ(of("0::/\n"), std::nullopt);
  EXPECT_EQ(of(""), std::nullopt);
}

// Prevents: a program gets a higher limit by a cgroup of a chosen name inside its own.
TEST_F(CeilingFiles, TheLowestHolds) {
  limit("job_7", "  2\n");
  limit("job_8", "200\n");
  EXPECT_EQ(of("0::/job_7/job_8\n"), 2);
  EXPECT_EQ(of("0::/job_8/job_7\n"), 2);
}

// Prevents: a limit that is being written, or cannot be read, is none.
TEST_F(CeilingFiles, AFileWithoutAPriorityIs0) {
  for (const char* text : {"", "x", "-5"}) {
    limit("job_7", text);
    EXPECT_EQ(of("0::/job_7\n"), 0) << text;
  }
  limit("job_7", "4711");
  EXPECT_EQ(of("0::/job_7\n"), 255);
}

// Prevents: a name of a cgroup leads to a file elsewhere.
TEST_F(CeilingFiles, NamesAreOfFilesInTheFolder) {
  limit("job_7", "2");
  std::filesystem::create_directory(folder_.file("inside"));
  EXPECT_EQ(ceiling_of("0::/../job_7\n", folder_.file("inside")), std::nullopt);
  EXPECT_EQ(ceiling_of("0::/..\n", folder_.file("inside")), std::nullopt);
}

}  // namespace
}  // namespace sluice::controller
