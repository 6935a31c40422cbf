#include "profiler/runs/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace sluice::profiler {
namespace {

constexpr double kAsGood = 1.05;

bool on_whole_gpu(const Record& record) {
  return record.details && record.details->sms > 0 &&
         record.details->device.find('@') == std::string::npos;
}

/// The time of the fastest program for each task and amount.
class Rows {
 public:
  void add(const Record& record, int amount) {
    if (!record.good()) return;
    SweepRow& row = rows_[record.details->task];
    row.task = record.details->task;
    row.name = record.task_name;
    const auto [place, is_new] = row.seconds.emplace(amount, record.cost());
    if (!is_new) place->second = std::min(place->second, record.cost());
  }
  [[nodiscard]] std::vector<SweepRow> take() {
    std::vector<SweepRow> rows;
    for (auto& [task, row] : rows_) rows.push_back(std::move(row));
    return rows;
  }

 private:
  std::map<std::string, SweepRow> rows_;
};

/// Of two records of a program and a device the later one. Amounts of two GPUs cannot be compared.
std::vector<Record> latest(const std::string& file) {
  std::map<std::pair<std::string, std::string>, Record> found;
  std::string gpu;
  for (Record& record : read_records(file).records) {
    if (!record.details || record.details->sms == 0) continue;
    const std::string of = record.details->device.substr(0, record.details->device.find('@'));
    if (!gpu.empty() && of != gpu) {
      throw base::UsageError(fmt::format(
          "{}: records of {} and {}; give another file for each GPU (-o)", file, gpu, of));
    }
    gpu = of;
    found[{record.details->program, record.details->device}] = std::move(record);
  }
  std::vector<Record> records;
  for (auto& [key, record] : found) records.push_back(std::move(record));
  return records;
}

/// Programs of all packs by task and size of blocks, `count` of each.
std::map<std::string, unsigned> by_block_size(const std::vector<std::string>& packs,
                                              std::size_t count) {
  std::map<std::pair<std::string, unsigned>, std::size_t> taken;
  std::map<std::string, unsigned> chosen;
  for (const std::string& file : packs) {
    for (const Program& program : read_pack(file).programs) {
      const Kernel* const kernel = widest(program.kernels);
      const auto threads = kernel == nullptr ? 0U : static_cast<unsigned>(kernel->threads());
      if (taken[{program.task, threads}]++ < count) chosen[program.id] = threads;
    }
  }
  return chosen;
}

}  // namespace

int turning_point(const std::map<int, double>& seconds) {
  double least = INFINITY;
  for (const auto& [amount, time] : seconds) least = std::min(least, time);
  return std::ranges::find_if(seconds,
                              [&](const auto& entry) { return entry.second <= kAsGood * least; })
      ->first;
}

std::set<std::string> fastest_programs(const std::vector<Record>& records, std::size_t count) {
  std::map<std::string, std::vector<std::pair<double, std::string>>> by_task;
  for (const Record& record : records) {
    if (!record.good() || !on_whole_gpu(record)) continue;
    by_task[record.details->task].emplace_back(record.cost(), record.details->program);
  }
  std::set<std::string> chosen;
  for (auto& [task, programs] : by_task) {
    std::ranges::sort(programs);
    for (std::size_t i = 0; i < std::min(count, programs.size()); ++i) {
      chosen.insert(programs[i].second);
    }
  }
  return chosen;
}

std::vector<SweepRow> rows_by_sms(const std::vector<Record>& records,
                                  const std::set<std::string>& programs) {
  Rows rows;
  for (const Record& record : records) {
    if (!record.details || !programs.contains(record.details->program)) continue;
    rows.add(record, record.details->sms);
  }
  return rows.take();
}

std::vector<SweepRow> sweep_sms(const SweepOptions& options) {
  const std::uint64_t begin_ns = base::monotonic_ns();
  MeasureOptions whole = options.measure;
  whole.sms.clear();
  // Half of the time, so that some is left for the shares.
  whole.limit_s /= 2;
  (void)measure_packs(whole);
  MeasureOptions shares = options.measure;
  shares.only = fastest_programs(latest(options.measure.out), options.programs);
  if (shares.only.empty()) return {};
  if (shares.limit_s > 0) {
    shares.limit_s = std::max(1.0, shares.limit_s - base::seconds_since(begin_ns));
  }
  (void)measure_packs(shares);
  return rows_by_sms(latest(options.measure.out), shares.only);
}

std::vector<SweepRow> sweep_blocks(const SweepOptions& options) {
  const auto chosen = by_block_size(options.measure.packs, options.programs);
  MeasureOptions measure = options.measure;
  measure.sms.clear();
  for (const auto& [program, threads] : chosen) measure.only.insert(program);
  if (measure.only.empty()) return {};
  (void)measure_packs(measure);
  Rows rows;
  for (const Record& record : latest(measure.out)) {
    const auto found = chosen.find(record.details->program);
    if (found != chosen.end() && on_whole_gpu(record)) {
      rows.add(record, static_cast<int>(found->second));
    }
  }
  return rows.take();
}

}  // namespace sluice::profiler
