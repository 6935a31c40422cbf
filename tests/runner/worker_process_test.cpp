#include "runner/run/worker_process.hpp"

#include <gtest/gtest.h>

#include "tests/support/eventually.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::runner {
namespace {

TEST(WorkerProcess, LastLinesAreTheLastOnesInTheirOrder) {
  const test::TempFolder folder;
  WorkerProcess worker("w", {"/bin/sh", "-c", "echo one; echo two >&2; echo three; exit 3"}, {},
                       folder.file("w.out"));
  ASSERT_TRUE(test::eventually([&] {
    worker.look();
    return worker.ended();
  }));
  EXPECT_EQ(worker.end(), "exited with 3");
  EXPECT_EQ(worker.last_lines(2), (std::vector<std::string>{"two", "three"}));
  EXPECT_EQ(worker.last_lines(9), (std::vector<std::string>{"one", "two", "three"}));
}

}  // namespace
}  // namespace sluice::runner
