#include "predictor/data/make_dataset.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <tuple>
#include <variant>

#include "base/error.hpp"
#include "predictor/source/count_kernels.hpp"
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
  /// Reads one entry after the other: the sources of a whole pack are gigabytes.
  void add_pack(const std::string& file) {
    profiler::PackReader reader(file);
    std::string target;
    while (const auto entry = reader.next()) {
      if (const auto* header = std::get_if<profiler::PackHeader>(&*entry)) {
        target = header->target;
      } else if (const auto* task = std::get_if<profiler::Task>(&*entry)) {
        add_task(*task, target);
      } else if (const auto* network = std::get_if<profiler::Network>(&*entry)) {
        add_network(*network, target);
      } else {
        add_program(std::get<profiler::Program>(*entry));
      }
    }
    if (reader.torn()) report_torn(file);
    for (const Program& program : data.programs) {
      const Task& task = data.tasks[program.task];
      if (!task.target.empty()) continue;
      throw base::UsageError(fmt::format("{}: program {} is of task {}, which is not in the pack",
                                         file, program.id, task.id));
    }
  }

  void add_record(const profiler::Record& record, Dropped& dropped) {
    const auto program = record.details ? programs_.find(record.details->program) : programs_.end();
    if (record.details && sourceless_.contains(record.details->program)) {
      ++dropped.sourceless;
    } else if (program == programs_.end() || record.details->device.empty()) {
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
      if (record.details->registers > 0) {
        data.programs[query.program].compiled = {
            .registers = double(record.details->registers),
            .spill_bytes = double(record.details->spill_bytes)};
      }
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
    task = task_of(from);
    task.target = target;
  }

  /// A network may be in several packs, each with some programs of its tasks.
  void add_network(const profiler::Network& from, const std::string& target) {
    if (!networks_.insert({from.name, target, from.batch}).second) return;
    Network network{.name = from.name, .batch = from.batch, .calls = {}};
    for (const auto& call : from.calls) {
      network.calls.push_back({task_number(call.task), call.after});
    }
    data.networks.push_back(std::move(network));
  }

  void add_program(const profiler::Program& from) {
    if (programs_.contains(from.id)) return;
    // Another pack may have its source.
    if (from.kernels.empty() || from.source.empty()) {
      sourceless_.insert(from.id);
      return;
    }
    sourceless_.erase(from.id);
    Program program = program_of(from);
    programs_.emplace(from.id, data.programs.size());
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
  std::set<std::string> sourceless_;
  std::set<std::tuple<std::string, std::string, std::int64_t>> networks_;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> labels_;
};

}  // namespace

Task task_of(const profiler::Task& from) {
  return {.id = from.id,
          .name = from.name,
          .workload_key = from.workload_key,
          .flop = from.flop,
          .bytes = bytes_of(from)};
}

Program program_of(const profiler::Program& from) {
  if (from.kernels.empty() || from.source.empty()) {
    throw base::UsageError(fmt::format(
        "program {} has no source of kernels for a GPU, which a prediction reads; `sluice programs "
        "make --resume -o PACK` writes it",
        from.id));
  }
  Program program{.id = from.id,
                  .index = static_cast<std::int64_t>(from.index),
                  .leaves = from.features.size()};
  const auto counts = count_kernels(from);
  for (std::size_t k = 0; k < counts.size(); ++k) {
    program.kernels.push_back({static_cast<double>(from.kernels[k].blocks()),
                               static_cast<double>(from.kernels[k].threads()), counts[k]});
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
    throw base::UsageError(
        "-i: no programs for a GPU with sources; give a pack that `sluice programs make` made");
  }
  if (need_labels && maker.data.labels.empty()) {
    throw base::UsageError(fmt::format(
        "-i: no measured program; give the records that `sluice opbench measure` wrote of these "
        "packs ({} failed, {} disturbed, {} uneven, {} without source, {} of unknown programs)",
        dropped.failed, dropped.disturbed, dropped.uneven, dropped.sourceless, dropped.unknown));
  }
  return std::move(maker.data);
}

void write_counts(const std::string& file, const Dataset& data) {
  std::ofstream out(file);
  out << "program,kernel,blocks,threads,fma,global_load_sectors,global_store_sectors,"
         "shared_load_wavefronts,shared_store_wavefronts\n";
  for (const Program& program : data.programs) {
    for (std::size_t k = 0; k < program.kernels.size(); ++k) {
      const auto& [blocks, threads, c] = program.kernels[k];
      out << fmt::format("{},{},{},{},{},{},{},{},{}\n", program.id, k, blocks, threads, c.fma,
                         c.global_load_sectors, c.global_store_sectors, c.shared_load_wavefronts,
                         c.shared_store_wavefronts);
    }
  }
  if (!out.flush()) throw base::RunError("cannot write " + file);
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
