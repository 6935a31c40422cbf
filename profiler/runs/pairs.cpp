#include "profiler/runs/pairs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <optional>
#include <set>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "profiler/tuner/tuner.hpp"
#include "profiler/workers/gpu_workers.hpp"
#include "profiler/workers/mps_daemon.hpp"

namespace sluice::profiler {
namespace {

using nlohmann::json;

constexpr double kPairLimitS = 120;
constexpr double kSteadyS = 0.2;
/// Both processes load their programs in this time, and then begin at once.
constexpr std::uint64_t kLoadNs = 300'000'000;

/// A program that is ready to run.
struct Loaded {
  Task task;
  Program program;
  MeasureError error = MeasureError::kNone;
};

/// Measures pairs in one sluice-measure (stream), or in two.
class PairBench {
 public:
  PairBench(const PairOptions& options)
      : options_(options),
        streams_(options.kind == "stream"),
        gpus_(gpu_commands(std::vector<int>(streams_ ? 1 : 2, options.device)), kPairLimitS) {
    for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) greet(gpu);
  }

  [[nodiscard]] const std::string& device() const { return device_; }
  [[nodiscard]] const std::string& arch() const { return arch_; }

  [[nodiscard]] PairRecord measure(const Loaded& a, const Loaded& b) {
    PairRecord record{.kind = options_.kind, .device = device_};
    record.sides = {PairSide{a.program.id, a.task.name}, PairSide{b.program.id, b.task.name}};
    record.error = a.error != MeasureError::kNone ? a.error : b.error;
    if (record.error != MeasureError::kNone) return record;
    try {
      record.times = streams_ ? on_streams(a, b) : in_processes(a, b);
    } catch (const Failed& failed) {
      fmt::print(stderr, "sluice opbench: programs {} and {}: {}\n", a.program.id, b.program.id,
                 failed.what());
      record.error = failed.error;
    }
    return record;
  }

 private:
  struct Failed : base::RunError {
    Failed(MeasureError why, const std::string& text) : base::RunError(text), error(why) {}
    MeasureError error;
  };

  void greet(std::size_t gpu) {
    const WorkerAnswer answer =
        ask(gpus_, gpu, json{{"do", "hello"}, {"sms", std::vector<unsigned>{0}}}.dump());
    const std::string where = fmt::format("GPU {}: ", options_.device);
    if (answer.how != WorkerAnswer::How::kAnswered) {
      throw base::RunError(where + "sluice-measure cannot use it; see the line above");
    }
    const json hello = json::parse(answer.text);
    if (!hello.at("ok")) throw base::RunError(where + hello.at("error").get<std::string>());
    device_ = hello.at("device");
    arch_ = hello.at("arch");
  }

  [[nodiscard]] json request_for(const std::vector<const Loaded*>& programs) const {
    json request{{"arch", arch_}, {"tasks", json::array()}, {"programs", json::array()}};
    for (const Loaded* loaded : programs) {
      request["tasks"].push_back(to_json(loaded->task));
      request["programs"].push_back(to_json(loaded->program));
    }
    return request;
  }

  /// The result in an answer. Replaces a process that is lost.
  json result_of(std::size_t gpu, const WorkerAnswer& answer) {
    using How = WorkerAnswer::How;
    const json result = answer.how == How::kAnswered ? json::parse(answer.text) : json{};
    if (answer.how == How::kAnswered && result.at("lost")) gpus_.restart(gpu);
    if (answer.how != How::kAnswered || result.at("lost")) greet(gpu);
    if (answer.how == How::kTimeout) throw Failed(MeasureError::kRunTimeout, "no answer");
    if (answer.how == How::kDied) {
      throw Failed(MeasureError::kRuntimeDevice, "sluice-measure " + answer.text);
    }
    if (!result.at("ok")) {
      throw Failed(result.at("code").get<MeasureError>(), result.at("error").get<std::string>());
    }
    return result;
  }

  PairTimes on_streams(const Loaded& a, const Loaded& b) {
    json request = request_for({&a, &b});
    request["do"] = "pair";
    const json found = result_of(0, ask(gpus_, 0, request.dump()));
    return {.alone_s = found.at("alone_s"),
            .runs = found.at("runs"),
            .together_s = found.at("together_s"),
            .serial_s = found.at("serial_s"),
            .spread = found.at("spread").is_null() ? INFINITY : found.at("spread").get<double>(),
            .disturbed = found.at("disturbed")};
  }

  /// The answers of the chosen processes. Two begin at the same time, one at once.
  std::array<json, 2> steadily(const std::array<const Loaded*, 2>& sides) {
    const bool both = sides[0] != nullptr && sides[1] != nullptr;
    const std::uint64_t begin_ns = both ? base::monotonic_ns() + kLoadNs : 0;
    std::array<WorkerAnswer, 2> answers;
    for (const std::size_t i : {0U, 1U}) {
      if (sides[i] == nullptr) continue;
      json request = request_for({sides[i]});
      request["do"] = "steady";
      request["begin_ns"] = begin_ns;
      request["seconds"] = kSteadyS;
      gpus_.submit(i, request.dump(),
                   [&answers, i](const WorkerAnswer& given) { answers[i] = given; });
    }
    while (gpus_.busy() > 0) (void)wait_for_answer({&gpus_}, 1);
    std::array<json, 2> results;
    std::optional<Failed> failed;
    for (const std::size_t i : {0U, 1U}) {
      if (sides[i] == nullptr) continue;
      try {
        results[i] = result_of(i, answers[i]);
        if (results[i].at("runs") == 0) {
          throw Failed(MeasureError::kRunTimeout, "too slow: no two batches within 0.2 s");
        }
      } catch (const Failed& why) {
        failed = why;
      }
    }
    if (failed) throw Failed(*failed);
    return results;
  }

  PairTimes in_processes(const Loaded& a, const Loaded& b) {
    const std::array<const Loaded*, 2> both{&a, &b};
    PairTimes times;
    for (const std::size_t i : {0U, 1U}) {
      std::array<const Loaded*, 2> one{};
      one[i] = both[i];
      const json alone = steadily(one)[i];
      times.alone_s[i] = alone.at("seconds").get<double>() / alone.at("runs").get<double>();
    }
    const auto together = steadily(both);
    for (const std::size_t i : {0U, 1U}) {
      times.runs[i] = together[i].at("runs");
      times.together_s[i] = together[i].at("seconds");
    }
    return times;
  }

  const PairOptions& options_;
  bool streams_;
  WorkerPool gpus_;
  std::string device_;
  std::string arch_;
};

/// The chosen programs with their sources, by id.
std::map<std::string, Loaded> load(const PairOptions& options, const std::string& arch,
                                   const std::set<std::string>& ids) {
  std::map<std::string, Loaded> found;
  for (const std::string& file : options.packs) {
    PackReader pack(file);
    std::map<std::string, Task> tasks;
    while (auto entry = pack.next()) {
      if (auto* header = std::get_if<PackHeader>(&*entry)) require_arch(file, *header, arch);
      if (auto* task = std::get_if<Task>(&*entry)) {
        task->sketches.clear();
        tasks[task->id] = std::move(*task);
      }
      auto* const program = std::get_if<Program>(&*entry);
      if (program == nullptr || !ids.contains(program->id)) continue;
      (void)keep_what_measures(*program, arch);
      Loaded loaded{.task = tasks[program->task], .program = std::move(*program)};
      found.emplace(loaded.program.id, std::move(loaded));
    }
  }
  return found;
}

/// Compiles programs in the order in which they are wanted, several at once, while pairs run.
class Compiling {
 public:
  Compiling(const PairOptions& options, std::string arch)
      : arch_(std::move(arch)),
        compilers_(compiler_commands(options.jobs), options.compile_limit_s) {}

  void want(Loaded& loaded) {
    if (!loaded.program.cubins.contains(arch_) && waiting_.insert(&loaded).second) {
      queue_.push_back(&loaded);
    }
  }
  /// Works until the program has its binary or an error.
  void finish(const Loaded& loaded) {
    submit();
    while (waiting_.contains(&loaded)) {
      (void)wait_for_answer({&compilers_}, 1);
      submit();
    }
  }

 private:
  void submit() {
    for (; !queue_.empty() && compilers_.idle() < compilers_.size(); queue_.pop_front()) {
      Loaded& loaded = *queue_.front();
      compilers_.submit(compilers_.idle(), compile_request(loaded.program, arch_),
                        [this, &loaded](const WorkerAnswer& answer) { take(loaded, answer); });
    }
  }
  void take(Loaded& loaded, const WorkerAnswer& answer) {
    waiting_.erase(&loaded);
    if (answer.how != WorkerAnswer::How::kAnswered) {
      loaded.error = answer.how == WorkerAnswer::How::kTimeout ? MeasureError::kCompileTimeout
                                                               : MeasureError::kCompileDevice;
      return;
    }
    const std::string why = take_binary(loaded.program, arch_, answer.text);
    if (why.empty()) return;
    fmt::print(stderr, "sluice opbench: program {}: {}\n", loaded.program.id, why);
    loaded.error = MeasureError::kCompileDevice;
  }

  std::string arch_;
  WorkerPool compilers_;
  std::deque<Loaded*> queue_;
  std::set<const Loaded*> waiting_;
};

void require_device(const std::string& file, const std::vector<Record>& records,
                    const std::string& device) {
  std::set<std::string> devices;
  for (const Record& record : records) devices.insert(record.details->device);
  if (devices.empty() || devices.contains(device)) return;
  throw base::UsageError(fmt::format(
      "{}: the programs of the packs have records of {}, none of {}; measure the packs on this GPU "
      "first (sluice opbench measure)",
      file, fmt::join(devices, ", "), device));
}

/// The programs to pair, in the order of their tasks: those of the packs with a fitting record.
std::vector<std::string> candidates(const PairOptions& options, const std::string& device) {
  std::set<std::string> in_packs;
  for (const std::string& file : options.packs) {
    for (const Program& program : read_pack(file).programs) in_packs.insert(program.id);
  }
  std::vector<Record> records;
  for (Record& record : read_records(options.records).records) {
    if (record.details && in_packs.contains(record.details->program)) {
      records.push_back(std::move(record));
    }
  }
  require_device(options.records, records, device);
  std::vector<std::string> ids;
  for (const auto& [task, record] :
       fastest_between(records, device, options.least_us * 1e-6, options.most_us * 1e-6)) {
    ids.push_back(record.details->program);
  }
  if (ids.size() < 2) {
    throw base::UsageError(fmt::format(
        "{}: {} operators of the packs have a program that takes {} to {} us on {}; measure the "
        "packs first (sluice opbench measure), or choose other times (--least-us, --most-us)",
        options.records, ids.size(), options.least_us, options.most_us, device));
  }
  return ids;
}

}  // namespace

std::vector<std::array<std::size_t, 2>> choose_pairs(std::size_t programs, std::size_t count,
                                                     std::uint64_t seed) {
  std::vector<std::array<std::size_t, 2>> all;
  for (std::size_t a = 0; a < programs; ++a) {
    for (std::size_t b = a + 1; b < programs; ++b) all.push_back({a, b});
  }
  Random random(seed);
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
  all.resize(std::min(count, all.size()));
  return all;
}

std::map<std::string, Record> fastest_between(const std::vector<Record>& records,
                                              const std::string& device, double least_s,
                                              double most_s) {
  std::map<std::string, Record> latest;
  for (const Record& record : records) {
    if (record.details && record.details->device == device) {
      latest[record.details->program] = record;
    }
  }
  std::map<std::string, Record> found;
  for (const auto& [id, record] : latest) {
    if (!record.good() || record.cost() < least_s || record.cost() > most_s) continue;
    const auto [place, is_new] = found.emplace(record.details->task, record);
    if (!is_new && record.cost() < place->second.cost()) place->second = record;
  }
  return found;
}

PairCounts measure_pairs(const PairOptions& options) {
  const std::uint64_t begin_ns = base::monotonic_ns();
  if (!std::filesystem::exists(options.records)) {
    throw base::UsageError(options.records +
                           ": no such file; measure the packs first (sluice opbench measure)");
  }
  for (const std::string& file : options.packs) (void)arch_of(file, read_header(file));
  std::optional<MpsDaemon> mps;
  if (options.kind == "mps") mps.emplace();
  PairBench bench(options);
  const auto ids = candidates(options, bench.device());
  const auto pairs = choose_pairs(ids.size(), options.pairs, options.seed);
  auto programs = load(options, bench.arch(), {ids.begin(), ids.end()});
  const PairRecords before = read_pair_records(options.out);
  if (before.torn) {
    fmt::print(stderr, "sluice opbench: {}: the last line is torn: dropped\n", options.out);
  }
  std::set<std::array<std::string, 2>> known;
  for (const PairRecord& record : before.records) {
    if (record.kind == options.kind && record.device == bench.device() && !record.times.disturbed) {
      known.insert({record.sides[0].program, record.sides[1].program});
    }
  }
  Compiling compiling(options, bench.arch());
  std::vector<std::array<Loaded*, 2>> unknown;
  PairCounts counts;
  for (const auto& [a, b] : pairs) {
    if (known.contains({ids[a], ids[b]})) {
      ++counts.known;
      continue;
    }
    unknown.push_back({&programs.at(ids[a]), &programs.at(ids[b])});
    for (Loaded* const loaded : unknown.back()) compiling.want(*loaded);
  }
  RecordFile out(options.out);
  for (const auto& [a, b] : unknown) {
    if (options.limit_s > 0 && base::seconds_since(begin_ns) > options.limit_s) {
      ++counts.left;
      continue;
    }
    compiling.finish(*a);
    compiling.finish(*b);
    const PairRecord record = bench.measure(*a, *b);
    out.add_line(to_line(record));
    ++(record.error != MeasureError::kNone ? counts.failed
       : record.times.disturbed            ? counts.disturbed
                                           : counts.good);
  }
  return counts;
}

}  // namespace sluice::profiler
