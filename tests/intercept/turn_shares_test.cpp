// How much of the GPU each client gets by turns, whatever the lengths of its kernels are. The GPU
// divides its time evenly among the clients that have a kernel on it, as the driver's slices do. A
// kernel begins only if the gate is open, and no gate stops one that has begun.
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include "tests/intercept/turns.hpp"

namespace sluice::intercept::test {
namespace {

class Shares : public Turns {
 protected:
  /// What a program does again and again: it launches kernels, waits for them, and thinks.
  struct Loop {
    std::uint64_t kernel_ns = 0;
    int kernels = 1;
    std::uint64_t gap_ns = 100'000;
    double spread = 0;  ///< Of the lengths of kernels.
    // Now.
    std::uint64_t left_ns = 0;  ///< Of the kernel on the GPU; 0: there is none.
    int queued = 0;
    std::uint64_t next_job_ns = 0;
    std::uint64_t used_ns = 0;
  };

  int add_loop(std::uint32_t weight, const Loop& loop) {
    loops_.push_back(loop);
    const int index = add(weight);
    slot(index).job.store(0);
    slot(index).job_since_ns.store(now_);
    return index;
  }
  Loop& loop(int index) { return loops_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] double used_ms(int index) { return static_cast<double>(loop(index).used_ns) / kMs; }

  bool is_drained(int index) override { return loop(index).left_ns == 0; }

  void serve() override {
    std::uint64_t on_gpu = 0;
    for (int i = 0; i < count_; ++i) {
      begin(i);
      on_gpu += loop(i).left_ns != 0 ? 1 : 0;
    }
    for (int i = 0; i < count_; ++i) {
      Loop& served = loop(i);
      for (std::uint64_t left = on_gpu == 0 ? 0 : kStepNs / on_gpu; left != 0;) {
        const std::uint64_t part = std::min(left, served.left_ns);
        if (part == 0) break;
        served.left_ns -= part;
        served.used_ns += part;
        left -= part;
        if (served.left_ns == 0) begin(i);
      }
      const bool has_job = shm::is_active(slot(i).job.load());
      if (!has_job || served.left_ns != 0 || served.queued != 0) continue;
      end_job(i);
      served.next_job_ns = now_ + served.gap_ns;
    }
  }

  /// The program has waited for its work. The time of the closed gate is that of the view.
  void end_job(int index) {
    shm::Slot& client = slot(index);
    const std::uint64_t since = client.closed_since_ns.load();
    if (since != 0) {
      client.closed_ns.fetch_add(shm::held_ns(client, since, now_));
      client.closed_since_ns.store(now_);
    }
    client.job.fetch_add(1);
  }

  void begin(int index) {
    Loop& here = loop(index);
    if (!shm::is_active(slot(index).job.load())) {
      if (now_ < here.next_job_ns) return;
      here.queued = here.kernels;
      slot(index).job.fetch_add(1);
      slot(index).job_since_ns.store(now_);
    }
    if (here.left_ns != 0 || here.queued == 0 || !is_open(index)) return;
    --here.queued;
    const double random = 2.0 * static_cast<double>(random_() % 1000) / 1000 - 1;
    here.left_ns = static_cast<std::uint64_t>(static_cast<double>(here.kernel_ns) *
                                              (1 + here.spread * random));
  }

  /// From now on for so long; what was used before does not count.
  void measure(std::uint64_t ms) {
    run(500);
    for (Loop& each : loops_) each.used_ns = 0;
    run(ms);
  }
  /// How far the shares of the two that differ most are from their weights, as a factor.
  [[nodiscard]] double unfairness() {
    double least = std::numeric_limits<double>::max();
    double most = 0;
    for (int i = 0; i < count_; ++i) {
      const double weight = std::max(slot(i).requested_weight.load(), 1U);
      least = std::min(least, used_ms(i) / weight);
      most = std::max(most, used_ms(i) / weight);
    }
    return most / least;
  }

  std::vector<Loop> loops_;
};

/// Kernels of so many us.
class SharesOfKernels : public Shares, public testing::WithParamInterface<std::uint64_t> {};

// Prevents: weights do nothing for kernels that are longer than a turn.
TEST_P(SharesOfKernels, AreThoseOfTheWeights) {
  const int a = add_loop(3, {GetParam() * 1000});
  const int b = add_loop(1, {GetParam() * 1000});
  measure(60'000);
  EXPECT_NEAR(used_ms(a) / used_ms(b), 3, 0.1);
}

INSTANTIATE_TEST_SUITE_P(Us, SharesOfKernels,
                         testing::Values(2000, 5000, 8000, 12'000, 30'000, 60'000, 100'000));

using Weights = std::pair<std::uint32_t, std::uint32_t>;
class SharesOfLongKernels : public Shares, public testing::WithParamInterface<Weights> {};

// Prevents: whoever has long kernels gets the share of others, more with weights than without.
TEST_P(SharesOfLongKernels, AreThoseOfTheWeights) {
  const auto [of_long, of_short] = GetParam();
  const int a = add_loop(of_long, {60 * kMs});
  const int b = add_loop(of_short, {kMs, 20});
  measure(60'000);
  const double asked = static_cast<double>(of_long) / of_short;
  EXPECT_NEAR(used_ms(a) / used_ms(b), asked, 0.05 * asked);
}

INSTANTIATE_TEST_SUITE_P(Weights, SharesOfLongKernels,
                         testing::Values(Weights{1, 1}, Weights{1, 3}, Weights{3, 1},
                                         Weights{1, 8}));

/// Programs of any weight with kernels of 0.1 to 100 ms.
class RandomShares : public Shares, public testing::WithParamInterface<int> {
 protected:
  /// `weights`: none, equal ones, or random ones.
  void add_loops(const char* weights) {
    random_.seed(static_cast<std::uint64_t>(GetParam()));
    const auto choose = [&](std::uint64_t most) { return random_() % (most + 1); };
    const int count = 2 + static_cast<int>(choose(2));
    for (int i = 0; i < count; ++i) {
      const double log_ms = -1 + 3 * static_cast<double>(choose(1000)) / 1000;
      Loop loop;
      loop.kernel_ns = static_cast<std::uint64_t>(std::pow(10.0, log_ms) * kMs);
      // A job of less would be mostly a host that thinks, and waste its turns.
      constexpr std::uint64_t kLeastJobNs = 4 * kMs;
      const auto least = static_cast<int>(kLeastJobNs / loop.kernel_ns);
      loop.kernels = std::max(least, 1 + static_cast<int>(choose(1) * choose(20)));
      loop.gap_ns = choose(2) * 50'000;
      loop.spread = 0.5 * static_cast<double>(choose(1));
      const auto weight = static_cast<std::uint32_t>(1 + choose(4));
      add_loop(std::string_view(weights) == "random" ? weight : weights[0] == 'e' ? 1 : 0, loop);
    }
  }
};

TEST_P(RandomShares, AreThoseOfTheWeights) {
  add_loops("random");
  measure(60'000);
  EXPECT_LT(unfairness(), 1.1);
}

/// The same programs on another board, where nobody takes turns.
class WithoutWeights : public RandomShares {
 public:
  double measured() {
    add_loops("none");
    measure(30'000);
    return unfairness();
  }

 private:
  void TestBody() override {}
};

TEST_P(RandomShares, AreNeverLessFairThanWithoutWeights) {
  const double without = WithoutWeights().measured();
  add_loops("equal");
  measure(30'000);
  EXPECT_LT(unfairness(), without * 1.1);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomShares, testing::Range(0, 24));

}  // namespace
}  // namespace sluice::intercept::test
