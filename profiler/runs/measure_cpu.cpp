#include "profiler/runs/measure_cpu.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "profiler/measure/rule.hpp"
#include "profiler/packs/selection.hpp"
#include "profiler/workers/gpu_workers.hpp"

namespace sluice::profiler {
namespace {

const std::string kTarget = "llvm";

bool for_cpu(const PackHeader& header) {
  return header.target.substr(0, header.target.find(' ')) == kTarget;
}

std::string device_of(int threads) { return fmt::format("cpu@{}", threads); }

class CpuMeasurement {
 public:
  CpuMeasurement(const MeasureOptions& options, ProgramServer& server)
      : options_(options),
        server_(server),
        known_(known_programs(options.out)),
        out_(options.out) {}

  void measure(const std::string& file) {
    const Pack pack = read_pack(file);
    if (pack.torn) report_torn(file);
    std::map<std::string, std::vector<const Program*>> wanted;
    for (const Program& program : pack.programs) {
      if (selection_.take(program, false)) wanted[program.task].push_back(&program);
    }
    counts_.networks.insert(counts_.networks.end(), pack.networks.begin(), pack.networks.end());
    for (const Network& network : pack.networks) {
      // A task of several networks is measured with the first.
      std::map<std::string, std::vector<const Program*>> of_network;
      for (const Network::Call& call : network.calls) {
        if (auto node = wanted.extract(call.task)) of_network.insert(std::move(node));
      }
      measure(pack, network, of_network);
    }
    for (const auto& [task, programs] : wanted) counts_.bare += programs.size();
  }

  [[nodiscard]] const MeasureCounts& counts() const { return counts_; }

 private:
  struct Due {
    const Program* program;
    int threads;
  };

  void measure(const Pack& pack, const Network& network,
               const std::map<std::string, std::vector<const Program*>>& by_task) {
    std::vector<Due> due;
    for (const auto& [task, programs] : by_task) {
      for (const Program* program : programs) add_due(*program, due);
    }
    if (due.empty()) return;
    if (late()) {
      counts_.left += due.size();
      return;
    }
    if (!import_network(network, pack.header)) {
      counts_.bare += due.size();
      return;
    }
    fmt::print(stderr, "sluice opbench: {}: {} programs to measure\n", network.name, due.size());
    for (const auto& [program, threads] : due) {
      if (late()) {
        ++counts_.left;
      } else if (!tasks_.contains(program->task)) {
        ++counts_.bare;
      } else {
        measure(pack, *program, threads);
      }
    }
  }

  void add_due(const Program& program, std::vector<Due>& due) {
    for (const int threads : options_.threads) {
      const auto found = known_.find(program.id);
      if (found != known_.end() && found->second.contains(device_of(threads))) {
        ++counts_.known;
      } else {
        due.push_back({&program, threads});
      }
    }
  }

  void measure(const Pack& pack, const Program& program, int threads) {
    Record record = begun_record(pack.header, pack.tasks.at(program.task), program);
    record.details->device = device_of(threads);
    record.details->threads = threads;
    time_on_cpu(server_, program, threads, record);
    out_.add(record);
    counts_.add(record);
  }

  bool import_network(const Network& network, const PackHeader& header) {
    tasks_.clear();
    const std::uint64_t import_ns = base::monotonic_ns();
    try {
      const auto imported = server_.import_network("", network.name, network.batch, header.target);
      for (const Task& task : imported.tasks) tasks_.insert(task.id);
    } catch (const base::RunError& error) {
      fmt::print(stderr, "sluice opbench: {}: {}\n", network.name, error.what());
    }
    // Else no run with a limit shorter than the import would ever measure a program.
    begin_ns_ += base::monotonic_ns() - import_ns;
    return !tasks_.empty();
  }

  [[nodiscard]] bool late() const {
    return options_.limit_s > 0 && base::seconds_since(begin_ns_) > options_.limit_s;
  }

  const MeasureOptions& options_;
  ProgramServer& server_;
  std::uint64_t begin_ns_ = base::monotonic_ns();
  std::map<std::string, std::set<std::string>> known_;
  RecordFile out_;
  Selection selection_{options_.per_task, options_.only};
  std::set<std::string> tasks_;  ///< Of the network that the server has imported.
  MeasureCounts counts_;
};

}  // namespace

bool is_for_cpu(const std::vector<std::string>& packs) {
  const bool cpu = for_cpu(read_header(packs.at(0)));
  for (const std::string& file : packs) {
    const PackHeader header = read_header(file);
    if (for_cpu(header) != cpu) {
      throw base::UsageError(fmt::format("{}: programs for {}, but the first pack is for {}", file,
                                         header.target, cpu ? "CPUs" : "GPUs"));
    }
  }
  return cpu;
}

MeasureCounts measure_cpu_packs(const MeasureOptions& options, ProgramServer& server) {
  CpuMeasurement measurement(options, server);
  for (const std::string& file : options.packs) measurement.measure(file);
  return measurement.counts();
}

void time_on_cpu(ProgramServer& server, const Program& program, int threads, Record& record) {
  const std::uint64_t begin_ns = base::monotonic_ns();
  record.error = MeasureError::kNone;
  record.details->spread = INFINITY;
  try {
    for (int i = 0; i <= kAgain && record.details->spread > kMostSpread; ++i) {
      const auto times = server.time(program.task, program.index, threads);
      if (!times.correct) record.error = MeasureError::kWrongAnswer;
      if (times.seconds.empty()) record.error = MeasureError::kRunTimeout;
      if (record.error != MeasureError::kNone) break;
      const auto [least, most] = std::ranges::minmax_element(times.seconds);
      const double spread = *least > 0 ? *most / *least : INFINITY;
      if (i > 0 && spread >= record.details->spread) continue;
      record.seconds = times.seconds;
      record.details->spread = spread;
    }
  } catch (const NetworkLost&) {
    throw;
  } catch (const ServerLost& lost) {
    fmt::print(stderr, "sluice opbench: program {}: {}\n", program.id, lost.what());
    record.error = lost.timeout() ? MeasureError::kRunTimeout : MeasureError::kRuntimeDevice;
  } catch (const base::RunError& error) {
    fmt::print(stderr, "sluice opbench: program {}: {}\n", program.id, error.what());
    record.error = MeasureError::kUnknown;
  }
  if (record.error != MeasureError::kNone) {
    record.seconds.clear();
    record.details->spread = 0;
  }
  record.details->disturbed = record.details->spread > kMostSpread;
  record.all_cost = base::seconds_since(begin_ns);
  record.timestamp = base::unix_seconds();  // of the end
}

}  // namespace sluice::profiler
