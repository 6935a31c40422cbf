// What others see of training: status, metrics, memory, and the Trainer of the memory broker.
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "server/training/training.hpp"

namespace sluice::server::training {

nlohmann::json Training::status() const {
  const std::lock_guard lock(mutex_);
  nlohmann::json jobs = nlohmann::json::array();
  for (const Job& job : jobs_) jobs.push_back(job.name);
  nlohmann::json out{{"mode", to_string(options_.mode)},
                     {"jobs", std::move(jobs)},
                     {"state", control_.state()},
                     {"launches", launches_},
                     {"orders", orders_},
                     {"kills", kills_},
                     {"finished", finished_},
                     {"failed", failed_}};
  if (process_) out["pid"] = process_->pid();
  const TrainerMemory memory = slot_.memory();
  out["attached"] = memory.attached;
  if (!memory.attached) {
    out["why"] = slot_.why_not_attached();
  } else {
    out["obeys"] = memory.obeys;
    out["held_bytes"] = memory.held;
    out["limited"] = memory.grant != shm::kNoLimit;
    if (memory.grant != shm::kNoLimit) out["grant_bytes"] = memory.grant;
  }
  return out;
}

void Training::write_metrics(base::MetricsText& out) const {
  const std::lock_guard lock(mutex_);
  const TrainerMemory memory = slot_.memory();
  const auto family = [&](const char* name, const char* type, const char* help, double value) {
    out.family(name, type, help);
    out.sample(value);
  };
  family("sluice_serve_train_launches_total", "counter", "Trainer processes started.",
         static_cast<double>(launches_));
  family("sluice_serve_train_orders_total", "counter", "Orders of the mode to sleep.",
         static_cast<double>(orders_));
  family("sluice_serve_train_kills_total", "counter", "Trainers killed by the mode.",
         static_cast<double>(kills_));
  family("sluice_serve_train_held_bytes", "gauge", "GPU memory of the trainer.",
         static_cast<double>(memory.held));
}

MemoryUse Training::memory_use() const {
  const std::lock_guard lock(mutex_);
  return slot_.memory_use();
}

TrainerMemory Training::memory() const {
  const std::lock_guard lock(mutex_);
  TrainerMemory memory = slot_.memory();
  memory.process = launches_;
  return memory;
}

bool Training::may_shrink(shm::MemoryOrder& by) const {
  by = options_.mode == Mode::kColocateL2 ? shm::MemoryOrder::kShrink : shm::MemoryOrder::kDrop;
  return options_.mode == Mode::kColocateL1 || options_.mode == Mode::kColocateL2;
}

void Training::set_grant(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  slot_.set_grant(bytes);
}

std::uint64_t Training::order(shm::MemoryOrder kind) {
  const std::lock_guard lock(mutex_);
  if (!slot_.memory().obeys) return 0;
  ++orders_;
  return slot_.order(kind);
}

bool Training::wait_done(std::uint64_t epoch, std::uint64_t until_ns) {
  constexpr std::chrono::microseconds kPause{50};
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (slot_.done(epoch)) return true;
    }
    if (base::monotonic_ns() >= until_ns) return false;
    std::this_thread::sleep_for(kPause);
  }
}

shm::ObeyParts Training::parts() const {
  const std::lock_guard lock(mutex_);
  return slot_.parts();
}

void Training::let_run() {
  const std::lock_guard lock(mutex_);
  slot_.drain();
}

void Training::resume() {
  const std::lock_guard lock(mutex_);
  slot_.resume();
}

void Training::end(const char* why) {
  const std::lock_guard lock(mutex_);
  if (!jobs_.empty() && process_) end_current({Code::kInternal, why}, SIGKILL);
}

}  // namespace sluice::server::training
