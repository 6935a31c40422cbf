// A training with LibTorch, on the CPU. A dropped micro-batch that leaves a trace, or a checkpoint
// that lacks something, changes what a training computes, and nobody notices.
#include <c10/core/AllocatorConfig.h>
#include <gmock/gmock.h>
#include <torch/library.h>

#include <cmath>
#include <sstream>
#include <stdexcept>

#include "engine/torch/served_torch.hpp"
#include "engine/torch/torch_error.hpp"
#include "engine/torch/train/release.hpp"
#include "engine/torch/train/training.hpp"
#include "engine/train/micro_batches.hpp"
#include "tests/support/standins/fake_orders.hpp"

namespace sluice::engine {
namespace {

using testing::HasSubstr;

TrainingOptions options_of(const std::string& model, OptimizerKind optimizer) {
  ModelSpec spec;
  spec.model_name = model;
  spec.backend = "training";
  TrainingOptions options;
  options.model = find_stored_model(ModelStore{SLUICE_TEST_TRAIN_MODELS}, spec,
                                    TorchTarget{false, "", SLUICE_TORCH_VERSION}, model);
  options.batch = 8;
  options.optimizer = optimizer;
  options.lr = 0.05;
  return options;
}

/// A training whose micro-batches may be refused at their begin, in their middle, at their end.
class Refused : public Training {
 public:
  using Training::Training;
  void run(std::size_t start, std::size_t items) override {
    if (refused()) fail();
    if (refused()) {
      Training::run(start, (items + 1) / 2);
      fail();
    }
    Training::run(start, items);
    if (refused()) fail();
  }

 private:
  static bool refused() { return sluice_fake_launch() != 0; }
  [[noreturn]] static void fail() {
    throw std::runtime_error("CUDA error: too many resources requested for launch");
  }
};

/// Its first run() fails in one operator, the `fails_at`th from 1, as if that launch were refused.
class RefusedAt : public Training {
 public:
  RefusedAt(const TrainingOptions& options, int fails_at) : Training(options), left_(fails_at) {
    library_.fallback(torch::CppFunction::makeFromBoxedFunction<&RefusedAt::each_operator>());
  }
  void run(std::size_t start, std::size_t items) override {
    running_ = this;
    const c10::impl::IncludeDispatchKeyGuard counted(kKey);
    Training::run(start, items);
  }
  /// Whether the first run() had as many operators.
  [[nodiscard]] bool failed() const { return left_ <= 0; }

 private:
  static constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

  static void each_operator(const c10::OperatorHandle& called, c10::Stack* stack) {
    if (--running_->left_ == 0) {
      sluice_fake_give(2);
      EXPECT_NE(sluice_fake_launch(), 0);
      throw std::runtime_error("CUDA error: too many resources requested for launch");
    }
    const c10::impl::ExcludeDispatchKeyGuard inside(kKey);
    called.callBoxed(stack);
  }

  static inline RefusedAt* running_ = nullptr;
  int left_;
  torch::Library library_{torch::Library::IMPL, "_", kKey, __FILE__, __LINE__};
};

class TrainTest : public testing::Test {
 protected:
  TrainTest() {
    use_threads(1);
    sluice_fake_plan(1, 0, 1, 1, "2");
  }

  static MicroBatches::Options sizes(std::size_t largest) {
    MicroBatches::Options options;
    options.batch = 8;
    options.largest = largest;
    return options;
  }

  /// Returns the loss after the steps.
  static double train(Training& training, std::size_t steps, std::size_t largest) {
    MicroBatches micro_batches(training, sizes(largest));
    for (std::size_t step = 0; step < steps; ++step) {
      micro_batches.run_batch();
      micro_batches.obey_pending();
      training.step();
    }
    return training.loss();
  }
};

TEST_F(TrainTest, AThousandDropsLeaveNoTrace) {
  constexpr std::size_t kSteps = 300;
  for (const auto optimizer : {OptimizerKind::kSgd, OptimizerKind::kAdamW}) {
    sluice_fake_plan(1, 0, 1, 1, "2");
    Refused undisturbed(options_of("conv", optimizer));
    train(undisturbed, kSteps, 2);

    sluice_fake_plan(1, 1000, 2, 4, "2234");
    Refused disturbed(options_of("conv", optimizer));
    train(disturbed, kSteps, 2);
    EXPECT_EQ(sluice_fake_count(test::kGiven), 1000U);
    EXPECT_GT(sluice_fake_count(test::kRefused), 300U);
    EXPECT_EQ(sluice_fake_count(test::kMistakes), 0U);
    EXPECT_EQ(disturbed.digest(), undisturbed.digest());
  }
}

// Prevents: a training whose first micro-batch was dropped has other labels.
TEST_F(TrainTest, ADropAtAnyOperatorOfTheFirstMicroBatchLeavesNoTrace) {
  const auto options = options_of("conv", OptimizerKind::kSgd);
  Training undisturbed(options);
  train(undisturbed, 2, 4);
  int operators = 0;
  for (bool failed = true; failed; ++operators) {
    RefusedAt disturbed(options, operators + 1);
    train(disturbed, 2, 4);
    failed = disturbed.failed();
    ASSERT_EQ(disturbed.digest(), undisturbed.digest()) << "refused: operator " << operators + 1;
  }
  EXPECT_GT(operators, 20);
}

TEST_F(TrainTest, MicroBatchesSumToTheBatch) {
  for (const auto optimizer : {OptimizerKind::kSgd, OptimizerKind::kAdamW}) {
    Training whole(options_of("plain", optimizer));
    Training parts(options_of("plain", optimizer));
    const double loss = train(whole, 20, 8);
    EXPECT_NEAR(train(parts, 20, 3), loss, 1e-4 * loss);
  }
}

TEST_F(TrainTest, TrainingLowersTheLoss) {
  Training images(options_of("plain", OptimizerKind::kSgd));
  EXPECT_NEAR(train(images, 1, 8), std::log(5), 0.5);
  EXPECT_LT(train(images, 200, 8), 1.3);
  Training text(options_of("text", OptimizerKind::kAdamW));
  EXPECT_NEAR(train(text, 1, 8), std::log(50), 1.0);
  EXPECT_LT(train(text, 30, 8), 2.0);
}

TEST_F(TrainTest, ATrainingGoesOnFromItsStateToTheBit) {
  for (const auto optimizer : {OptimizerKind::kSgd, OptimizerKind::kAdamW}) {
    Training first(options_of("conv", optimizer));
    train(first, 5, 4);
    std::stringstream state;
    first.write_state(state, {3, 5});
    train(first, 5, 4);

    Training second(options_of("conv", optimizer));
    train(second, 2, 4);  // whatever it did before
    const Progress progress = second.read_state(state);
    EXPECT_EQ(progress.epoch, 3U);
    EXPECT_EQ(progress.step, 5U);
    train(second, 5, 4);
    EXPECT_EQ(second.digest(), first.digest());
  }
}

TEST_F(TrainTest, TheStateBeforeTheFirstStepHasNoMomentum) {
  Training training(options_of("conv", OptimizerKind::kSgd));
  std::stringstream start;
  training.write_state(start, {});
  train(training, 3, 4);
  const std::string digest = training.digest();
  static_cast<void>(training.read_state(start));
  train(training, 3, 4);
  EXPECT_EQ(training.digest(), digest);
}

TEST_F(TrainTest, TheStateOfAnotherTrainingIsRefused) {
  Training sgd(options_of("conv", OptimizerKind::kSgd));
  std::stringstream state;
  sgd.write_state(state, {});
  const auto refusal = [&](const TrainingOptions& options) -> std::string {
    std::stringstream copy(state.str());
    try {
      static_cast<void>(Training(options).read_state(copy));
    } catch (const base::RunError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal(options_of("conv", OptimizerKind::kAdamW)), HasSubstr("sgd"));
  auto other_seed = options_of("conv", OptimizerKind::kSgd);
  other_seed.seed = 7;
  EXPECT_THAT(refusal(other_seed), HasSubstr("of another training"));
  EXPECT_EQ(refusal(options_of("conv", OptimizerKind::kSgd)), "accepted");
  state.str(state.str().substr(0, state.str().size() / 2));
  EXPECT_NE(refusal(options_of("conv", OptimizerKind::kSgd)), "accepted");
}

TEST_F(TrainTest, AFrozenFileIsRefused) {
  try {
    const Training training(options_of("frozen", OptimizerKind::kSgd));
    FAIL();
  } catch (const base::UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("export the model with --train"));
  }
}

TEST(AllocatorSettings, AreThoseOfTheUserAndLargePages) {
  namespace allocator = c10::CachingAllocator;
  using Config = allocator::AcceleratorAllocatorConfig;
  constexpr std::size_t kMib = 1 << 20;
  struct Case {
    std::string said;
    std::size_t page_mib;
    bool expandable;
  };
  const std::vector<Case> cases{
      {"", 64, true},
      {"expandable_segments:True,", 64, true},
      {" expandable_segments : False", 64, false},
      {"max_split_size_mb:128,large_segment_size_mb : 20,expandable_segments:True", 20, true},
      {"large_segment_size_mb:32,large_segment_size_mb:40,", 40, false}};
  for (const auto& [said, page_mib, expandable] : cases) {
    allocator::setAllocatorSettings("large_segment_size_mb:20,expandable_segments:False");
    ASSERT_NO_THROW(allocator::setAllocatorSettings(allocator_settings(said))) << said;
    EXPECT_EQ(Config::large_segment_size(), page_mib * kMib) << said;
    EXPECT_EQ(Config::use_expandable_segments(), expandable) << said;
  }
  EXPECT_ANY_THROW(allocator::setAllocatorSettings(allocator_settings("large_segment_size_mb:0")))
      << "pages of no bytes";
}

TEST_F(TrainTest, AnotherSeedIsAnotherTraining) {
  auto other = options_of("conv", OptimizerKind::kSgd);
  other.seed = 7;
  Training one(options_of("conv", OptimizerKind::kSgd));
  Training two(other);
  EXPECT_NE(train(one, 1, 8), train(two, 1, 8));
}

}  // namespace
}  // namespace sluice::engine
