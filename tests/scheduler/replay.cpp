#include "tests/scheduler/replay.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/arrival_gaps.hpp"
#include "scheduler/queue.hpp"

namespace sluice::scheduler {
namespace {

constexpr std::size_t kRequests = 1000;
constexpr double kMs = 1e6;

struct Model {
  double limit_ms;  ///< Alone, before the experiment.
  double whole_ms;  ///< In the experiment.
  std::vector<double> block_ms;
};

/// yolov2, googlenet, gpt128v2, resnet50 and vgg19: typical values of the published requests
/// (EdgeScheduler/DLIR-Allocator, commit b379395, data/*/9624955804878585299 and
/// data/*/11145471626182783555).
const std::array<Model, 5> kModels{{{5.9, 6.5, {}},
                                    {8.9, 9.8, {}},
                                    {7.0, 13.7, {}},
                                    {18.8, 19.3, {14.8, 13.2}},
                                    {45.6, 45.6, {19.5, 18.0, 21.0}}}};

std::uint64_t ns(double ms) { return static_cast<std::uint64_t>(std::llround(ms * kMs)); }

/// As the published client draws them.
std::vector<Task> arrivals(unsigned lambda_ms, Slo slo, unsigned seed) {
  std::vector<Task> tasks;
  for (std::uint32_t m = 0; m < kModels.size(); ++m) {
    base::NearPeriodicGaps gaps(lambda_ms, (seed * 10 + m) * 100 + 100);
    std::uint64_t at_ms = 0;
    for (std::size_t i = 0; i < kRequests; ++i) {
      at_ms += gaps.next_ms();
      Task task;
      task.model = m;
      task.arrival_ns = at_ms * 1'000'000;
      task.limit_ns = ns(kModels[m].limit_ms);
      task.deadline_ns = task.arrival_ns + static_cast<unsigned>(slo) * task.limit_ns;
      task.whole_ns = ns(kModels[m].whole_ms);
      for (const double block : kModels[m].block_ms) task.block_ns.push_back(ns(block));
      tasks.push_back(task);
    }
  }
  std::ranges::stable_sort(tasks, {}, &Task::arrival_ns);
  tasks.resize(kRequests);
  for (std::size_t i = 0; i < tasks.size(); ++i) tasks[i].id = i;
  return tasks;
}

struct Running {
  Step step;
  double left_ns;
  double weight;
};

/// Steps that run at once (PARALLER) share the GPU in proportion to the length of their model's
/// kernels. This is a model: it takes that length as proportional to the length of the whole model.
/// As in the published data, the longest model is hardly delayed and the short ones wait for it.
class Gpu {
 public:
  void begin(const Step& step) {
    running_.push_back({step, static_cast<double>(step.expected_ns), kModels[step.model].whole_ms});
  }
  [[nodiscard]] bool idle() const { return running_.empty(); }
  [[nodiscard]] double next_end_ns() const {
    double next = std::numeric_limits<double>::infinity();
    for (const Running& each : running_) next = std::min(next, each.left_ns / share(each));
    return next;
  }
  /// Advances by at most next_end_ns(). Returns the steps that ended.
  std::vector<Step> advance(double ns) {
    std::vector<double> shares;
    for (const Running& each : running_) shares.push_back(share(each));
    for (std::size_t i = 0; i < running_.size(); ++i) running_[i].left_ns -= ns * shares[i];
    std::vector<Step> ended;
    std::erase_if(running_, [&](const Running& each) {
      if (each.left_ns < 0.5) ended.push_back(each.step);
      return each.left_ns < 0.5;
    });
    return ended;
  }

 private:
  [[nodiscard]] double share(const Running& one) const {
    double all = 0;
    for (const Running& each : running_) all += each.weight;
    return one.weight / all;
  }
  std::vector<Running> running_;
};

Outcome outcome(const std::vector<Task>& tasks, const std::vector<std::uint64_t>& end_ns) {
  std::vector<double> ratio;
  Outcome result;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const double latency = static_cast<double>(end_ns[i] - tasks[i].arrival_ns);
    ratio.push_back(std::max(1.0, latency / static_cast<double>(tasks[i].limit_ns)));
    if (end_ns[i] > tasks[i].deadline_ns) ++result.late;
  }
  const auto count = static_cast<double>(ratio.size());
  result.mean = std::accumulate(ratio.begin(), ratio.end(), 0.0) / count;
  result.max = std::ranges::max(ratio);
  double squares = 0;
  for (const double each : ratio) squares += (each - result.mean) * (each - result.mean);
  result.deviation = std::sqrt(squares / count);
  return result;
}

}  // namespace

Outcome replay(Policy policy, unsigned lambda_ms, Slo slo, unsigned seed) {
  const std::vector<Task> tasks = arrivals(lambda_ms, slo, seed);
  std::vector<std::uint64_t> end_ns(tasks.size());
  Queue queue(policy);
  for (std::uint32_t m = 0; m < kModels.size(); ++m) queue.add_model(m);

  Gpu gpu;
  std::uint64_t now = 0;
  for (std::size_t next = 0; next < tasks.size() || !queue.empty();) {
    while (next < tasks.size() && tasks[next].arrival_ns <= now) queue.insert(tasks[next++], now);
    while (const auto step = queue.begin(now)) gpu.begin(*step);
    double advance = gpu.next_end_ns();
    if (next < tasks.size()) {
      advance = std::min(advance, static_cast<double>(tasks[next].arrival_ns - now));
    }
    advance = std::ceil(advance);
    now += static_cast<std::uint64_t>(advance);
    for (const Step& step : gpu.advance(advance)) {
      queue.end(step.task, now);
      end_ns[step.task] = now;
    }
  }
  return outcome(tasks, end_ns);
}

Outcome mean_of_replays(Policy policy, unsigned lambda_ms, Slo slo) {
  constexpr unsigned kSeeds = 10;
  Outcome mean;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    const Outcome each = replay(policy, lambda_ms, slo, seed);
    mean.mean += each.mean / kSeeds;
    mean.max += each.max / kSeeds;
    mean.deviation += each.deviation / kSeeds;
    mean.late += each.late / kSeeds;
  }
  return mean;
}

}  // namespace sluice::scheduler
