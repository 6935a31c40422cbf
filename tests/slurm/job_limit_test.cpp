// Prevents: a job raises its priority on the GPU by its environment. Needs no Slurm.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/temp_folder.hpp"

extern "C" {
#include "slurm/job_limit.h"
}

namespace {

using sluice::test::TempFolder;

TEST(JobLimit, IsAFileThatOnlyRootMayChange) {
  const TempFolder node;
  ASSERT_EQ(sluice_limit_job(node.path().c_str(), 7, 2), 0);
  const std::string file = node.file("ceilings/job_7");
  EXPECT_EQ(sluice::test::read_file(file), "  2\n");
  struct stat found {};
  ASSERT_EQ(stat(file.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U & ~0644U, 0U);
  ASSERT_EQ(stat(node.file("ceilings").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U & ~0755U, 0U);
}

// Prevents: a step of a job takes the priority of another one away.
TEST(JobLimit, IsThatOfTheHighestStep) {
  const TempFolder node;
  for (const int priority : {0, 200, 3, 0}) {
    ASSERT_EQ(sluice_limit_job(node.path().c_str(), 7, priority), 0);
  }
  EXPECT_EQ(sluice::test::read_file(node.file("ceilings/job_7")), "200\n");
  ASSERT_EQ(sluice_limit_job(node.path().c_str(), 8, 0), 0);
  EXPECT_EQ(sluice::test::read_file(node.file("ceilings/job_8")), "  0\n");
}

TEST(JobLimit, AFolderThatIsMissingIsAnError) {
  EXPECT_EQ(sluice_limit_job("/no/such/folder", 7, 2), -1);
}

}  // namespace
