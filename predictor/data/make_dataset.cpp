#include "predictor/data/make_dataset.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "profiler/packs/pack.hpp"
#include "profiler/records/record.hpp"

namespace sluice::predictor {
namespace {

namespace fs = std::filesystem;

constexpr double kMostSpread = 1.2;
constexpr double kLeastSeconds = 1e-6;

bool is_pack(const std::string& file) { return file.ends_with(".programs"); }

bool is_records(const std::string& file) {
  return file.ends_with(".jsonl") || file.ends_with(".jsonl.xz");
}

using Kind = bool (*)(const std::string& file);

/// The files of `inputs` of this kind; folders are searched, sorted by name.
std::vector<std::string> files_of(const std::vector<std::string>& inputs, Kind is_wanted) {
  std::vector<std::string> found;
  for (const std::string& input : inputs) {
    if (!fs::is_directory(input)) {
      if (is_wanted(input)) found.push_back(input);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : fs::directory_iterator(input)) {
      if (is_wanted(entry.path().string())) inside.push_back(entry.path().string());
    }
    std::ranges::sort(inside);
    found.insert(found.end(), inside.begin(), inside.end());
  }
  return found;
}

void check_inputs(const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    if (!fs::exists(input)) throw base::UsageError("-i: there is no " + input);
    if (!fs::is_directory(input) && !is_pack(input) && !is_records(input)) {
      throw base::UsageError(
          "-i: " + input +
          " is neither a pack (*.programs) nor records (*.jsonl, *.jsonl.xz) nor a "
          "folder");
    }
  }
}

void report_torn(const std::string& file) {
  fmt::print(stderr, "sluice predict: {}: the end is torn: dropped\n", file);
}

/// A folder may also have the pairs of `sluice opbench pairs`.
bool has_pairs(const std::string& file) {
  if (file.ends_with(".xz")) return false;
  std::ifstream in(file);
  std::string line;
  return std::getline(in, line) && line.find("\"kind\"") != std::string::npos &&
         line.find("\"programs\"") != std::string::npos;
}

double bytes_of(const profiler::Task& task) {
  double bytes = 0;
  for (const auto& buffer : task.buffers) bytes += static_cast<double>(buffer.bytes());
  return bytes;
}

class Maker {
 public:
  void add_pack(const std::string& file) {
    const profiler::Pack pack = profiler::read_pack(file);
    if (pack.torn) report_torn(file);
    for (const auto& [id, task] : pack.tasks) add_task(task, pack.header.target);
    for (const auto& network : pack.networks) add_network(network, pack.header.target);
    for (const auto& program : pack.programs) {
      const auto task = pack.tasks.find(program.task);
      if (task == pack.tasks.end()) {
        throw base::UsageError(fmt::format("{}: program {} is of task {}, which is not in the pack",
                                           file, program.id, program.task));
      }
      add_program(program, task->second, file);
    }
  }

  void add_record(const profiler::Record& record, Dropped& dropped) {
    const auto program = record.details ? programs_.find(record.details->program) : programs_.end();
    if (program == programs_.end() || record.details->device.empty()) {
      ++dropped.unknown;
    } else if (record.error != profiler::MeasureError::kNone || record.seconds.empty()) {
      ++dropped.failed;
    } else if (record.details->disturbed) {
      ++dropped.disturbed;
    } else if (record.details->spread >= kMostSpread) {
      ++dropped.uneven;
    } else if (record.cost() < kLeastSeconds) {
      ++dropped.brief;
    } else {
      const Query query{program->second, device(record.details->device)};
      const auto [place, added] =
          labels_.try_emplace({query.program, query.device}, data.labels.size());
      if (added) {
        data.labels.push_back({query, record.cost()});
      } else {
        data.labels[place->second].seconds = record.cost();
        ++dropped.repeated;
      }
    }
  }

  Dataset data;

 private:
  std::size_t task_number(const std::string& id) {
    const auto [place, added] = tasks_.try_emplace(id, data.tasks.size());
    if (added) data.tasks.push_back({.id = id});
    return place->second;
  }

  void add_task(const profiler::Task& from, const std::string& target) {
    Task& task = data.tasks[task_number(from.id)];
    task.name = from.name;
    task.target = target;
    task.workload_key = from.workload_key;
    task.flop = from.flop;
    task.bytes = bytes_of(from);
  }

  /// A network may be in several packs, each with some programs of its tasks.
  void add_network(const profiler::Network& from, const std::string& target) {
    if (!networks_.insert({from.name, target, from.batch}).second) return;
    Network network{.name = from.name, .target = target, .batch = from.batch, .calls = {}};
    for (const auto& call : from.calls) {
      network.calls.push_back({task_number(call.task), call.after});
    }
    data.networks.push_back(std::move(network));
  }

  void add_program(const profiler::Program& from, const profiler::Task& task,
                   const std::string& file) {
    if (!programs_.try_emplace(from.id, data.programs.size()).second) return;
    Program program = program_of(from, task, file);
    program.task = task_number(from.task);
    data.programs.push_back(std::move(program));
  }

  std::size_t device(const std::string& name) {
    const auto found = std::ranges::find(data.devices, name);
    if (found != data.devices.end()) return static_cast<std::size_t>(found - data.devices.begin());
    data.devices.push_back(name);
    return data.devices.size() - 1;
  }

  std::map<std::string, std::size_t> tasks_;
  std::map<std::string, std::size_t> programs_;
  std::set<std::tuple<std::string, std::string, std::int64_t>> networks_;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> labels_;
};

}  // namespace

std::array<float, kLaunchFeatures> launch_features(const std::vector<profiler::Kernel>& kernels,
                                                   const profiler::Task& task) {
  constexpr std::uint64_t kWarp = 32;
  std::uint64_t all = 0, least = 0, unused = 0, local = 0, shared = 0;
  for (const profiler::Kernel& kernel : kernels) {
    const std::uint64_t threads = kernel.threads();
    all += kernel.all_threads();
    least = least == 0 ? threads : std::min(least, threads);
    unused = std::max(unused, (kWarp - threads % kWarp) % kWarp);
    local = std::max<std::uint64_t>(local, kernel.local);
    shared = std::max<std::uint64_t>(shared, std::uint64_t{kernel.shared} + kernel.static_shared);
  }
  const profiler::Kernel* const largest = profiler::widest(kernels);
  const std::uint64_t blocks = largest == nullptr ? 0 : largest->blocks();
  const std::uint64_t threads = largest == nullptr ? 0 : largest->threads();
  const double each = static_cast<double>(std::max<std::uint64_t>(all, 1));
  const double bytes = bytes_of(task);
  const auto real = [](std::uint64_t n) { return static_cast<double>(n); };
  std::array<double, kLaunchFeatures> numbers{
      real(kernels.size()), real(blocks), real(threads), real(all), real(least),      real(unused),
      real(local),          real(shared), task.flop,     bytes,     task.flop / each, bytes / each};
  std::array<float, kLaunchFeatures> found{};
  std::ranges::transform(numbers, found.begin(),
                         [](double n) { return static_cast<float>(std::log2(1 + n)); });
  return found;
}

Program program_of(const profiler::Program& from, const profiler::Task& task,
                   const std::string& file) {
  Program program{.id = from.id,
                  .index = static_cast<std::int64_t>(from.index),
                  .positions = {from.position.begin(), from.position.end()}};
  const auto launch = launch_features(from.kernels, task);
  for (const auto& of_leaf : from.features) {
    if (of_leaf.size() != kStoreFeatures) {
      throw base::UsageError(fmt::format("{}: program {} has {} features of a leaf, not {}", file,
                                         from.id, of_leaf.size(), kStoreFeatures));
    }
    Leaf& leaf = program.leaves.emplace_back();
    std::ranges::copy(launch, std::ranges::copy(of_leaf, leaf.begin()).out);
  }
  if (program.leaves.empty() || program.positions.size() != program.leaves.size()) {
    throw base::UsageError(fmt::format("{}: program {} has {} leaves and {} positions", file,
                                       from.id, program.leaves.size(), program.positions.size()));
  }
  return program;
}

Dataset make_dataset(const std::vector<std::string>& inputs, bool need_labels, Dropped& dropped) {
  check_inputs(inputs);
  Maker maker;
  for (const std::string& file : files_of(inputs, is_pack)) maker.add_pack(file);
  for (const std::string& file : files_of(inputs, is_records)) {
    if (has_pairs(file)) continue;
    const auto found = profiler::read_records(file);
    for (const auto& record : found.records) maker.add_record(record, dropped);
    if (found.torn) report_torn(file);
  }
  if (maker.data.programs.empty()) {
    throw base::UsageError("-i: no programs; give a pack that `sluice programs make` made");
  }
  if (need_labels && maker.data.labels.empty()) {
    throw base::UsageError(fmt::format(
        "-i: no measured program; give the records that `sluice opbench measure` wrote of these "
        "packs ({} failed, {} disturbed, {} uneven, {} of unknown programs)",
        dropped.failed, dropped.disturbed, dropped.uneven, dropped.unknown));
  }
  return std::move(maker.data);
}

void write_tasks(const std::string& file, const Dataset& data) {
  std::vector<std::set<std::string>> networks(data.tasks.size());
  std::vector<std::size_t> programs(data.tasks.size());
  std::vector<std::size_t> labels(data.tasks.size());
  for (const Network& network : data.networks) {
    for (const auto& call : network.calls) networks[call.task].insert(network.name);
  }
  for (const Program& program : data.programs) ++programs[program.task];
  for (const Label& label : data.labels) ++labels[data.programs[label.query.program].task];
  std::ofstream out(file);
  out << "number,task,name,target,flop,bytes,programs,labels,networks\n";
  for (std::size_t i = 0; i < data.tasks.size(); ++i) {
    const Task& task = data.tasks[i];
    out << fmt::format("{},{},{},{},{:.0f},{:.0f},{},{},{}\n", i, task.id, task.name, task.target,
                       task.flop, task.bytes, programs[i], labels[i], fmt::join(networks[i], " "));
  }
  if (!out.flush()) throw base::RunError("cannot write " + file);
}

}  // namespace sluice::predictor
