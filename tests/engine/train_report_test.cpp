// The lines of `sluice train`. Scripts of the published trainers parse them, so every character
// counts. And its checkpoints: a file that is half written would end a training for good.
#include <gtest/gtest.h>

#include <ostream>

#include "base/error.hpp"
#include "engine/train/checkpoint.hpp"
#include "engine/train/report.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::engine {
namespace {

TEST(TrainReport, TheLineOfAnEpochIsAsPublished) {
  const EpochCounts counts{.batches = 62,
                           .tried = 70,
                           .killed = 8,
                           .finished = 62,
                           .micro_batch_size = 13,
                           .waited_ns = 120'000'000};
  EXPECT_EQ(epoch_line("ResNet", 0, counts, 16, 12'276'000'000, 10'597'831'311),
            "[ResNet epoch 0] 12.276s | batch cnt 62 avg 198.0ms | try 70 kill 8 finish 62 | "
            "batch-size 16 | micro-batch-size 13 | memory 9.87Gb | wait_bs_valid 0.120s");
}

TEST(TrainReport, TheLineOfAnAdjustmentIsAsPublished) {
  const Adjustment adjustment{.batch = 3,
                              .before = 16,
                              .after = 13,
                              .freed_ns = 4'100'000,
                              .waited_ns = 200'000,
                              .bytes_before = 10'597'831'311,
                              .bytes_after = 7'645'041'787};
  EXPECT_EQ(adjust_line(adjustment),
            "batch 3 adjust : bs 16 -> 13 | 4.1ms | 0.2ms | gpu_mem 9.87Gb -> 7.12Gb");
}

TEST(TrainCheckpoint, AFailureLeavesTheOldOne) {
  const test::TempFolder folder;
  const std::string file = folder.file("state");
  replace_file(file, [](std::ostream& out) { out << "old"; });
  EXPECT_THROW(replace_file(file,
                            [&](std::ostream& out) {
                              out << "half" << std::flush;
                              EXPECT_EQ(test::read_file(file), "old");
                              throw base::RunError("the GPU is gone");
                            }),
               base::RunError);
  EXPECT_EQ(test::read_file(file), "old");
  replace_file(file, [](std::ostream& out) { out << "new"; });
  EXPECT_EQ(test::read_file(file), "new");
}

TEST(TrainCheckpoint, AFolderThatIsMissingIsNamed) {
  try {
    replace_file("/nowhere/state", [](std::ostream&) {});
    FAIL();
  } catch (const base::RunError& error) {
    EXPECT_STREQ(error.what(),
                 "cannot write the checkpoint /nowhere/state.part: No such file or directory");
  }
}

}  // namespace
}  // namespace sluice::engine
