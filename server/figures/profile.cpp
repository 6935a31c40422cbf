#include "server/figures/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "base/clock.hpp"
#include "base/output.hpp"
#include "base/statistics.hpp"

namespace sluice::server {
namespace {

constexpr std::size_t kMostKept = 1U << 20U;
constexpr std::array<std::string_view, static_cast<std::size_t>(PerfItem::kCount)> kPerfNames{
    "InferQueue", "InferProcess", "TrainAdjust", "InferAllocStorage", "InferLoadParam"};

double as_ms(std::uint64_t ns) { return static_cast<double>(ns) / 1e6; }
double as_mb(std::uint64_t bytes) { return static_cast<double>(bytes) / (1U << 20U); }

/// Until the trainer had obeyed and its memory was free.
std::uint64_t adjust_ns(const training::Handover& handover) {
  const shm::ObeyParts& obey = handover.obey;
  return handover.order_ns + obey.drop_ns + obey.drain_ns + obey.give_ns;
}

}  // namespace

Profile::Profile(std::function<training::MemoryUse()> read_memory)
    : start_ns_(base::monotonic_ns()),
      start_real_ns_(base::clock_ns(CLOCK_REALTIME)),
      read_memory_(std::move(read_memory)),
      thread_([this] { sample(); }) {}

Profile::~Profile() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

double Profile::ms(std::uint64_t at_ns) const {
  return at_ns > start_ns_ ? as_ms(at_ns - start_ns_) : 0;
}

void Profile::sample() {
  std::unique_lock lock(mutex_);
  auto next = std::chrono::steady_clock::now();
  while (!stop_) {
    lock.unlock();
    const Sample now{base::monotonic_ns(), read_memory_()};
    lock.lock();
    samples_.push_back(now);
    if (samples_.size() == kMostKept) {
      // A server that runs for days keeps every other sample, and samples half as often.
      for (std::size_t i = 0; i < samples_.size() / 2; ++i) samples_[i] = samples_[2 * i];
      samples_.resize(samples_.size() / 2);
      period_ns_ *= 2;
    }
    next = std::max(next + std::chrono::nanoseconds(period_ns_), std::chrono::steady_clock::now());
    wake_.wait_until(lock, next, [this] { return stop_; });
  }
}

void Profile::took(PerfItem item, std::uint64_t ns) {
  const std::uint64_t now = base::monotonic_ns();
  const std::lock_guard lock(mutex_);
  add(item, ns);
  if (item == PerfItem::kInferAllocStorage) {
    note(now - ns, "AddInfer");
    note(now - ns, "InferAllocStorageStart");
    note(now, "InferAllocStorageEnd");
  } else if (item == PerfItem::kInferLoadParam) {
    note(now - ns, "InferLoadParamStart");
    note(now, "InferLoadParamEnd");
  }
}

void Profile::evicted() {
  const std::lock_guard lock(mutex_);
  note(base::monotonic_ns(), "InferExit");
}

void Profile::note(std::uint64_t at_ns, std::string_view event) {
  if (events_.size() < kMostKept) events_.push_back({at_ns, event});
}

void Profile::add(PerfItem item, std::uint64_t ns) {
  Durations& to = durations_[static_cast<std::size_t>(item)];
  const double value = as_ms(ns);
  to.max_ms = to.count == 0 ? value : std::max(to.max_ms, value);
  to.min_ms = to.count == 0 ? value : std::min(to.min_ms, value);
  to.sum_ms += value;
  ++to.count;
  if (to.kept_ms.size() < kMostKept) {
    to.kept_ms.push_back(value);
  } else if (const std::uint64_t place = random_() % to.count; place < kMostKept) {
    to.kept_ms[place] = value;
  }
}

void Profile::handover(const training::Handover& handover) {
  const std::lock_guard lock(mutex_);
  add(PerfItem::kTrainAdjust, adjust_ns(handover));
  note(handover.at_ns, "TrainAdjustStart");
  note(handover.at_ns + adjust_ns(handover), "TrainAdjustEnd");
  if (handovers_.size() < kMostKept) handovers_.push_back(handover);
}

void Profile::write_perf(std::string& out) const {
  out += "[Perf Info]\n";
  for (std::size_t i = 0; i < durations_.size(); ++i) {
    const Durations& of = durations_[i];
    if (of.count == 0) continue;
    out += fmt::format("{}: avg {:.1f} max {:.1f} min {:.1f} cnt {} |", kPerfNames[i],
                       of.sum_ms / static_cast<double>(of.count), of.max_ms, of.min_ms, of.count);
    for (const int percent : {99, 95, 90, 80, 70, 50}) {
      out += fmt::format(" p{} {:.1f}", percent, base::percentile(of.kept_ms, percent / 100.0));
    }
    out += '\n';
  }
  out += '\n';
}

void Profile::write_events(std::string& out) const {
  // An event may be known only at the end of what it began.
  std::vector<Event> events = events_;
  std::ranges::stable_sort(events, {}, &Event::at_ns);
  out += "[Event Info]\n";
  for (const Event& each : events) out += fmt::format("{:.1f}: {}\n", ms(each.at_ns), each.name);
  out += '\n';
}

void Profile::write_memory(std::string& out) const {
  out += "[Memory Info]\n";
  for (const Sample& each : samples_) {
    out += fmt::format("{:.1f}: Infer {:.2f} Mb Train {:.2f} Mb Total {:.2f} Mb\n", ms(each.at_ns),
                       as_mb(each.use.infer), as_mb(each.use.train), as_mb(each.use.total));
  }
  out += '\n';
}

void Profile::write_handovers(std::string& out) const {
  out += "[Adjust Info]\n";
  for (const training::Handover& each : handovers_) {
    out += fmt::format(
        "{:.1f}: {:.2f} Mb order {:.3f} drop {:.3f} drain {:.3f} give {:.3f} take {:.3f} load "
        "{:.3f}{}\n",
        ms(each.at_ns), as_mb(each.bytes), as_ms(each.order_ns), as_ms(each.obey.drop_ns),
        as_ms(each.obey.drain_ns), as_ms(each.obey.give_ns), as_ms(each.take_ns),
        as_ms(each.load_ns), each.obeyed ? "" : " not obeyed");
  }
  out += '\n';
}

std::string Profile::text() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  write_perf(out);
  write_events(out);
  write_memory(out);
  write_handovers(out);
  // Joins this file with records of requests, whose times are those of CLOCK_REALTIME.
  out += fmt::format("[Clock Info]\n0.0: {:.3f}\n", as_ms(start_real_ns_));
  return out;
}

void Profile::write(const std::string& file) const { base::LineFile(file).write(text()); }

}  // namespace sluice::server
