#include "server/requests/announcer.hpp"

#include <sluice/sluice.h>

#include <bit>
#include <utility>

namespace sluice::server {

std::uint64_t Announcer::headers(int gpu, const std::string& model, std::uint64_t bytes,
                                 std::uint64_t now) {
  const std::lock_guard lock(mutex_);
  // Requests of the same model and size class take about the same time to arrive.
  Entry entry{model + '/' + std::to_string(std::bit_width(bytes)), gpu, now};
  const auto known = notice_ns_.find(entry.kind);
  const bool may = announce_ && gpu != kNoGpu && !busy_.contains(gpu);
  if (may && known != notice_ns_.end() && known->second >= kLeastNs) {
    entry.announced_ns = static_cast<std::uint64_t>(known->second);
    entry.job = sluice_job_announce_on(gpu, now + entry.announced_ns);
    if (entry.job == 0) entry.announced_ns = 0;
  }
  const std::uint64_t id = next_id_++;
  entries_.emplace(id, std::move(entry));
  return id;
}

Announcer::Entry Announcer::take(std::uint64_t id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return {};
  Entry entry = std::move(found->second);
  entries_.erase(found);
  return entry;
}

void Announcer::forget(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  sluice_job_cancel(take(id).job);
}

void Announcer::call_off(Entry& entry) {
  entry.announced_ns = 0;
  sluice_job_cancel(std::exchange(entry.job, 0));
}

void Announcer::goes_to(std::uint64_t id, int gpu) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.gpu == gpu) return;
  call_off(found->second);
  found->second.gpu = gpu;
}

void Announcer::begin_busy(int gpu, std::uint64_t id, std::uint64_t now) {
  const std::lock_guard lock(mutex_);
  Entry entry = take(id);
  if (entry.gpu != gpu) call_off(entry);
  busy_[gpu] = jobs_ && gpu != kNoGpu ? sluice_job_begin_on(gpu, entry.job) : 0;
  if (entry.headers_ns == 0) return;
  constexpr double kNewWeight = 0.1;
  const auto took = static_cast<double>(now - entry.headers_ns);
  const auto [known, is_new] = notice_ns_.try_emplace(entry.kind, took);
  if (!is_new) known->second += kNewWeight * (took - known->second);
}

void Announcer::end_busy(int gpu) {
  const std::lock_guard lock(mutex_);
  const auto busy = busy_.find(gpu);
  if (busy == busy_.end()) return;
  sluice_job_end(busy->second);
  busy_.erase(busy);
}

std::uint64_t Announcer::announced_ns(std::uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  return found == entries_.end() ? 0 : found->second.announced_ns;
}

}  // namespace sluice::server
