#include "server/workload/plan.hpp"

#include <fmt/format.h>

#include <numeric>
#include <random>
#include <regex>

#include "base/arrival_gaps.hpp"
#include "base/error.hpp"
#include "server/workload/trace_file.hpp"

namespace sluice::server::workload {
namespace {

constexpr int kMostReplicas = 1000;
constexpr double kLeastRate = 0.001;
constexpr const char* kBenchmark = "benchmark";

struct Named {
  std::string model;   ///< On the server: with the number of the replica.
  std::string family;  ///< Without.
  std::string suffix;  ///< "", "p", "d" or "dp"
};

std::vector<Named> expand(const std::string& text) {
  static const std::regex kPattern(R"((.+?)(-(p|d|dp))?(\[([0-9]{1,4})\])?)");
  std::smatch match;
  if (!std::regex_match(text, match, kPattern)) {
    throw base::UsageError("--infer-model: found '" + text + "', allowed: m, m-p, m-d, m-dp, m[N]");
  }
  const std::string family = match[1];
  const std::string suffix = match[3];
  const int replicas = match[5].matched ? std::stoi(match[5]) : 1;
  if (replicas < 1 || replicas > kMostReplicas || family.find('[') != std::string::npos) {
    throw base::UsageError("--infer-model: found '" + text + "', allowed: m[1] to m[1000]");
  }
  std::vector<Named> all{{family, family, suffix}};
  for (int i = 1; i < replicas; ++i) {
    all.push_back({family + "-" + std::to_string(i), family, suffix});
  }
  return all;
}

/// A replica without values of its own has those of its family.
const std::vector<double>* values_of(const ByModel& by_model, const Named& named) {
  auto found = by_model.find(named.model);
  if (found == by_model.end()) found = by_model.find(named.family);
  return found == by_model.end() ? nullptr : &found->second;
}

const std::vector<double>& needed(const ByModel& by_model, const Named& named,
                                  const std::string& option) {
  const auto* values = values_of(by_model, named);
  if (values == nullptr) {
    throw base::UsageError(
        fmt::format("{}-{} needs {} {}=...", named.family, named.suffix, option, named.family));
  }
  return *values;
}

double only(const std::vector<double>& values, const std::string& option, const Named& named) {
  if (values.size() == 1) return values.front();
  throw base::UsageError(
      fmt::format("{} {}: found {} values, allowed: 1", option, named.model, values.size()));
}

void check_rate(double rate, const std::string& option, const std::string& model) {
  if (rate == 0 || rate >= kLeastRate) return;
  throw base::UsageError(
      fmt::format("{} {}: found {}, allowed: 0, or {} and more", option, model, rate, kLeastRate));
}

void check_changes(const std::vector<double>& change_s, const std::string& model) {
  if (std::is_sorted(change_s.begin(), change_s.end())) return;
  throw base::UsageError("--change-time-point " + model + ": the times must ascend");
}

Steps<double> steps_of(const Options& options, const ByModel& by_model, const std::string& option,
                       const Named& named) {
  Steps<double> steps{needed(options.change_s, named, "--change-time-point"),
                      needed(by_model, named, option)};
  check_changes(steps.change_s, named.model);
  if (steps.values.size() != steps.change_s.size() + 1) {
    throw base::UsageError(fmt::format("{} {}: found {} values for {} changes, allowed: {}", option,
                                       named.model, steps.values.size(), steps.change_s.size(),
                                       steps.change_s.size() + 1));
  }
  return steps;
}

ClosedLoop dynamic_loop(const Options& options, const Named& named) {
  const std::string option = "--dynamic-concurrency";
  const Steps<double> steps = steps_of(options, options.dynamic_concurrency, option, named);
  ClosedLoop loop;
  loop.outstanding.change_s = steps.change_s;
  for (const double value : steps.values) {
    loop.outstanding.values.push_back(static_cast<std::size_t>(value));
    if (value > 100'000 || value != static_cast<double>(loop.outstanding.values.back())) {
      throw base::UsageError(fmt::format("{} {}: found {}, allowed: whole numbers to 100000",
                                         option, named.model, value));
    }
  }
  return loop;
}

TickedPoisson ticked(const std::string& option, const Named& named, Steps<double> rate_per_s) {
  for (const double rate : rate_per_s.values) check_rate(rate, option, named.model);
  return {std::move(rate_per_s)};
}

/// A model without a suffix. Nothing: switched off.
std::optional<Law> plain_law(const Options& options, const Named& named) {
  std::optional<double> gap_ms = options.lambda_ms;
  if (const auto* own = values_of(options.lambda_of_ms, named)) {
    gap_ms = only(*own, "--lambda-of", named);
    if (*gap_ms == 0) return std::nullopt;
    check_rate(*gap_ms, "--lambda-of", named.model);
  }
  if (gap_ms && options.near_periodic) return NearPeriodic{*gap_ms};
  if (gap_ms) return Poisson{*gap_ms};
  ClosedLoop loop{{{}, {options.concurrency}}};
  if (const auto* interval = values_of(options.interval_ms, named)) {
    loop.interval_ms = only(*interval, "--interval", named);
  }
  return loop;
}

std::optional<Law> law_of(const Options& options, const Named& named) {
  if (named.suffix == "p") {
    const std::vector<double> rate = needed(options.poisson, named, "--poisson");
    return ticked("--poisson", named, {{}, {only(rate, "--poisson", named)}});
  }
  if (named.suffix == "d") return dynamic_loop(options, named);
  if (named.suffix == "dp") {
    const std::string option = "--dynamic-poisson";
    return ticked(option, named, steps_of(options, options.dynamic_poisson, option, named));
  }
  return plain_law(options, named);
}

/// In each period a random total rate, split at random over a random part of the models. Nothing is
/// sent in the first period.
std::vector<Worker> benchmark(const Options& options, const std::vector<Named>& models) {
  const auto changes = options.change_s.find(kBenchmark);
  if (changes == options.change_s.end()) {
    throw base::UsageError("--benchmark needs --change-time-point benchmark=...");
  }
  check_changes(changes->second, kBenchmark);
  std::mt19937_64 random(options.seed);
  std::vector<Steps<double>> rates(models.size(), Steps<double>{changes->second, {}});
  std::vector<std::size_t> order(models.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t period = 0; period <= changes->second.size(); ++period) {
    const double total = period == 0 ? 0 : base::uniform(random) * *options.random_dynamic_poisson;
    const auto chosen =
        static_cast<std::size_t>(base::uniform(random) * static_cast<double>(models.size() + 1));
    for (std::size_t i = order.size(); i > 1; --i) {
      const auto other = static_cast<std::size_t>(base::uniform(random) * static_cast<double>(i));
      std::swap(order[i - 1], order[other]);
    }
    std::vector<double> share(models.size(), 0);
    for (std::size_t i = 0; i < chosen; ++i) share[order[i]] = base::uniform(random);
    const double sum = std::accumulate(share.begin(), share.end(), 0.0);
    for (std::size_t m = 0; m < models.size(); ++m) {
      const double rate = sum > 0 ? total * share[m] / sum : 0;
      rates[m].values.push_back(rate < kLeastRate ? 0 : rate);
    }
  }
  std::vector<Worker> workers;
  for (std::size_t m = 0; m < models.size(); ++m) {
    workers.push_back({models[m].model, TickedPoisson{rates[m]}});
  }
  return workers;
}

/// An option for a model that is not asked for is a typing mistake.
void refuse_unknown(const std::string& option, const ByModel& by_model,
                    const std::vector<Named>& models) {
  for (const auto& [name, values] : by_model) {
    const bool known =
        name == kBenchmark ||
        std::any_of(models.begin(), models.end(), [&, &name = name](const Named& named) {
          return named.model == name || named.family == name;
        });
    if (!known) throw base::UsageError(option + ": '" + name + "' is not in --infer-model");
  }
}

}  // namespace

std::vector<Worker> plan(const Options& options) {
  if (!options.trace_file.empty()) return read_trace(options.trace_file);
  std::vector<Named> models;
  for (const std::string& text : options.infer_models) {
    for (Named& named : expand(text)) {
      for (const Named& other : models) {
        if (other.model == named.model) {
          throw base::UsageError("--infer-model: '" + named.model + "' is given twice");
        }
      }
      models.push_back(std::move(named));
    }
  }
  refuse_unknown("--poisson", options.poisson, models);
  refuse_unknown("--interval", options.interval_ms, models);
  refuse_unknown("--change-time-point", options.change_s, models);
  refuse_unknown("--dynamic-concurrency", options.dynamic_concurrency, models);
  refuse_unknown("--dynamic-poisson", options.dynamic_poisson, models);
  refuse_unknown("--lambda-of", options.lambda_of_ms, models);
  if (options.random_dynamic_poisson) return benchmark(options, models);
  std::vector<Worker> workers;
  for (const Named& named : models) {
    if (auto law = law_of(options, named)) workers.push_back({named.model, std::move(*law)});
  }
  if (workers.empty()) throw base::UsageError("--lambda-of switches every model off");
  return workers;
}

LoadOptions load_options(const Options& options) {
  LoadOptions load;
  load.duration_s = options.duration_s;
  load.count = options.count;
  load.max_outstanding = options.max_outstanding;
  load.seed = options.seed;
  if (options.announce_ms) {
    load.announce_ns = static_cast<std::uint64_t>(*options.announce_ms * 1e6);
  }
  return load;
}

std::string describe_benchmark(const std::vector<Worker>& workers) {
  std::string text = "requests per second:\n";
  for (const Worker& worker : workers) {
    text += fmt::format("  {:>15}:", worker.model);
    for (const double rate : std::get<TickedPoisson>(worker.law).rate_per_s.values) {
      text += fmt::format(" {:.1f}", rate);
    }
    text += '\n';
  }
  return text;
}

}  // namespace sluice::server::workload
