#pragma once
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "profiler/packs/pack.hpp"
#include "profiler/records/record.hpp"
#include "profiler/workers/worker_pool.hpp"

/// `sluice opbench measure`: the programs of packs to records.
namespace sluice::profiler {

struct MeasureOptions {
  std::vector<std::string> packs;
  std::string out = "records.jsonl";
  std::vector<int> devices{0};
  std::vector<unsigned> sms;  ///< Shares; empty: all SMs only.
  std::vector<int> threads;   ///< Of a program on the CPU, one measurement for each.
  std::size_t jobs = 1;       ///< Compile workers.
  double compile_limit_s = 10;
  double limit_s = 0;          ///< No program is begun later; 0: no limit.
  std::set<std::string> only;  ///< Ids of the programs to measure; empty: all.
  std::size_t per_task = 0;    ///< The first programs of each task in a pack; 0: all.
  std::string reference;       ///< Folder with TASK/BUFFER.bin; empty: none.
};

/// What became of programs. A program on two shares counts twice.
struct MeasureCounts {
  std::size_t good = 0;
  std::size_t disturbed = 0;
  std::map<MeasureError, std::size_t> errors;
  std::size_t known = 0;              ///< Records of an earlier run.
  std::size_t left = 0;               ///< Programs that the time limit left out.
  std::size_t bare = 0;               ///< Programs that cannot be made: see the pack's target.
  std::vector<Network> networks{};    ///< Of the packs.
  std::size_t without_reference = 0;  ///< Tasks of which the given reference has no outputs.

  void add(const Record& record);
};

/// A record without a result.
[[nodiscard]] Record begun_record(const PackHeader& header, const Task& task,
                                  const Program& program);

/// Which programs have a record on which devices in a file. Disturbed ones are measured again.
[[nodiscard]] std::map<std::string, std::set<std::string>> known_programs(const std::string& file);

/// Compiles and measures programs in child processes: several compile at once, each GPU measures
/// one at a time.
class Measurement {
 public:
  /// Throws base::RunError if a GPU cannot be used.
  explicit Measurement(MeasureOptions options);

  using OnRecord = std::function<void(const Record&)>;

  /// Queues a program; first works until there is room for it. `task` must outlive the call of
  /// `done` for every share. `known`: names of devices that need no measuring. The program has a
  /// source, or a binary for arch().
  void add(const PackHeader& header, const Task& task, Program program,
           const std::set<std::string>& known, OnRecord done);
  /// Works until every queued program has its records.
  void finish();

  /// The names of the shares in records, in the order of the options.
  [[nodiscard]] std::vector<std::string> devices() const;
  /// sm_90, for instance: what the GPU runs.
  [[nodiscard]] const std::string& arch() const { return arch_; }

 private:
  struct Job;
  struct ShareName {
    unsigned wanted = 0;  ///< 0: all SMs.
    int sms = 0;
    std::string device;
  };

  void greet(std::size_t gpu);
  void work();
  void compile(const std::shared_ptr<Job>& job);
  void compiled(const std::shared_ptr<Job>& job, const WorkerAnswer& answer);
  void measure_ready();
  void measured(std::size_t gpu, const std::shared_ptr<Job>& job, const WorkerAnswer& answer);
  void record_times(const Job& job, const nlohmann::json& answer);
  void fail(const Job& job, MeasureError error) const;

  MeasureOptions options_;
  WorkerPool compilers_;
  WorkerPool gpus_;
  std::string arch_;
  std::vector<ShareName> shares_;
  std::deque<std::shared_ptr<Job>> ready_;
  std::set<std::string> said_;  ///< Shares that are missing.
};

/// Measures packs for GPUs into options.out, without the programs that are there already.
MeasureCounts measure_packs(const MeasureOptions& options);

}  // namespace sluice::profiler
