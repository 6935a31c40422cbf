#include "intercept/slot/held_memory.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "intercept/driver/log.hpp"
#include "intercept/driver/threads.hpp"
#include "shm/memory.hpp"

namespace sluice::intercept {

HeldMemory::Device* HeldMemory::device(CUdevice index) noexcept {
  const auto place = static_cast<std::size_t>(index);
  return place < devices_.size() ? &devices_[place] : nullptr;
}

/// Under the lock, so that the slot never shows an older sum than another thread has written.
void HeldMemory::change(Device& device, std::uint64_t bytes) noexcept {
  device.bytes = bytes;
  if (device.client == nullptr) return;
  const auto index = static_cast<CUdevice>(&device - devices_.data());
  shm::note_held(device.client->slot().memory, bytes + kept_on(index, 0));
}

std::uint64_t HeldMemory::kept_on(CUdevice index, PoolId but) const noexcept {
  std::uint64_t sum = 0;
  for (PoolId i = 1; i <= pools_.size(); ++i) {
    const Pool& pool = pools_[i - 1];
    if (i == but || pool.device != index || pool.name == nullptr) continue;
    sum += pool.reserved > pool.allocated ? pool.reserved - pool.allocated : 0;
  }
  return sum;
}

HeldMemory::HeldMemory(std::uint64_t own_limit) noexcept
    : own_limit_(own_limit == 0 ? shm::kNoLimit : own_limit) {}

/// The place of this thread, or a free one; null if there is none. A thread is in one call at a
/// time, so what it finds in its place is left of a thread that had the same id.
HeldMemory::Reservation* HeldMemory::own_reservation() noexcept {
  const pid_t self = thread_id();
  Reservation* free = nullptr;
  for (Reservation& each : reservations_) {
    if (each.thread == self) return &each;
    if (each.thread == 0 && free == nullptr) free = &each;
  }
  return free;
}

std::uint64_t HeldMemory::reserved_on(CUdevice index) const noexcept {
  std::uint64_t sum = 0;
  for (const Reservation& each : reservations_) {
    if (each.thread != 0 && each.device == index) sum += each.bytes;
  }
  return sum;
}

void HeldMemory::forget_reservations_of_ended_threads() noexcept {
  for (Reservation& each : reservations_) {
    if (each.thread != 0 && ThreadMarks::is_gone(each.thread)) each = {};
  }
}

std::uint64_t HeldMemory::limit_of(const Device& device) const noexcept {
  return device.client != nullptr ? device.client->orders().limit() : own_limit_;
}

std::uint64_t HeldMemory::grant_of(const Device& device) noexcept {
  const bool bound = device.client != nullptr && device.client->priority() == 0;
  return bound ? device.client->orders().granted() : shm::kNoLimit;
}

bool HeldMemory::bounds(const Device* device) const noexcept {
  return device != nullptr && std::min(limit_of(*device), grant_of(*device)) != shm::kNoLimit;
}

std::uint64_t HeldMemory::left_of(CUdevice index, std::uint64_t most, PoolId own) const noexcept {
  if (most == shm::kNoLimit) return most;
  const std::uint64_t taken =
      devices_[static_cast<std::size_t>(index)].bytes + kept_on(index, own) + reserved_on(index);
  return most > taken ? most - taken : 0;
}

HeldMemory::Refusal HeldMemory::refusal_of(CUdevice index, std::uint64_t bytes,
                                           PoolId own) noexcept {
  Device& on = *device(index);
  const auto exceeds = [&](std::uint64_t most) { return bytes > left_of(index, most, own); };
  if (exceeds(std::min(limit_of(on), grant_of(on)))) forget_reservations_of_ended_threads();
  const bool by_limit = exceeds(limit_of(on));
  const auto may = [&] { return !exceeds(grant_of(on)) || on.client->orders().may_exceed(); };
  if (!by_limit && may()) return Refusal::kNone;
  count_refused(on);
  return by_limit ? Refusal::kByLimit : Refusal::kByGrant;
}

void HeldMemory::count_refused(Device& device) noexcept {
  if (device.client != nullptr) {
    device.client->orders().count_refused_allocations(1);
  } else {
    ++device.refused;
  }
}

bool HeldMemory::fits(CUdevice index, std::uint64_t bytes, PoolId own) noexcept {
  const std::lock_guard lock(mutex_);
  const Device* const on = device(index);
  return on == nullptr || bytes <= left_of(index, std::min(limit_of(*on), grant_of(*on)), own);
}

void HeldMemory::refuse(CUdevice index, std::uint64_t bytes) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (Device* const on = device(index)) count_refused(*on);
  }
  say_refused(index, bytes);
}

/// Without memory for its place, the call is not counted.
bool HeldMemory::reserve(CUdevice index, std::uint64_t bytes, PoolId own) noexcept {
  Refusal refusal = Refusal::kNone;
  {
    const std::lock_guard lock(mutex_);
    if (device(index) == nullptr) return true;
    Reservation* place = own_reservation();
    if (place != nullptr) *place = {};
    refusal = refusal_of(index, bytes, own);
    if (refusal == Refusal::kNone && place == nullptr) {
      forget_reservations_of_ended_threads();
      place = own_reservation();
      if (place == nullptr) if_memory_lasts([&] { place = &reservations_.emplace_back(); });
    }
    if (refusal == Refusal::kNone && place != nullptr) *place = {thread_id(), index, bytes};
  }
  if (refusal == Refusal::kByLimit) say_refused(index, bytes);
  return refusal == Refusal::kNone;
}

/// Once, because a program may try again and again.
void HeldMemory::say_refused(CUdevice index, std::uint64_t bytes) noexcept {
  if (said_refused_.exchange(true)) return;
  const std::uint64_t most = limit(index);
  Line(Level::kWarn) << "GPU " << index << ": an allocation of " << (bytes >> 20U)
                     << " MiB was refused: the limit is " << (most >> 20U) << " MiB, of which "
                     << (bytes_on(index) >> 20U) << " are held (this line comes once)";
}

void HeldMemory::unreserve() noexcept {
  const std::lock_guard lock(mutex_);
  Reservation* const own = own_reservation();
  if (own != nullptr) *own = {};
}

void HeldMemory::add(Table table, std::uint64_t key, const Piece& piece) noexcept {
  const bool added = if_memory_lasts([&] {
    const auto made = std::make_shared<const Piece>(piece);
    const std::lock_guard lock(mutex_);
    forget_ended(records(table), key, 1);
    records(table).emplace(key, Record{made, 1, 0, 0});
    if (Reservation* const own = own_reservation()) *own = {};
    if (piece.pool != 0) pools_[piece.pool - 1].allocated += piece.bytes;
    if (Device* const on = device(piece.device)) change(*on, on->bytes + piece.bytes);
  });
  if (!added) unreserve();
}

/// Whether another thread is in a call that ends it.
bool HeldMemory::is_ending(const Record& record) noexcept {
  return record.ending != 0 && record.ended_by != thread_id() &&
         !ThreadMarks::is_gone(record.ended_by);
}

/// The driver gives these keys out anew. So the records that cancelled threads wanted to end have
/// ended.
void HeldMemory::forget_ended(Records& in, std::uint64_t key, std::uint64_t size) noexcept {
  for (auto at = in.lower_bound(key); at != in.end() && at->first - key < size;) {
    const bool ended = at->second.ending != 0 && !is_ending(at->second);
    at = ended ? erase(in, at) : std::next(at);
  }
}

std::shared_ptr<const HeldMemory::Piece> HeldMemory::living(Records& in,
                                                            std::uint64_t key) noexcept {
  for (auto at = in.upper_bound(key); at != in.begin();) {
    --at;
    if (key - at->first >= at->second.size) return nullptr;
    if (!is_ending(at->second)) return at->second.piece;
  }
  return nullptr;
}

bool HeldMemory::knows(Table table, std::uint64_t key) noexcept {
  const std::lock_guard lock(mutex_);
  return living(records(table), key) != nullptr;
}

void HeldMemory::add_record(Table table, std::uint64_t key, std::uint64_t size, Table from,
                            std::uint64_t known) noexcept {
  if_memory_lasts([&] {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const Piece> piece = living(records(from), known);
    if (piece == nullptr) return;
    if (table == Table::kMappings) forget_ended(records(table), key, size);
    records(table).emplace(key, Record{std::move(piece), size, 0, 0});
  });
}

HeldMemory::Mark HeldMemory::begin_end(Table table, std::uint64_t key,
                                       std::uint64_t size) noexcept {
  const std::lock_guard lock(mutex_);
  Mark mark = 0;
  Records& all = records(table);
  for (auto at = all.lower_bound(key); at != all.end() && at->first - key < size; ++at) {
    if (is_ending(at->second)) continue;
    if (mark == 0) mark = ++last_mark_;
    at->second.ending = mark;
    at->second.ended_by = thread_id();
    if (table != Table::kMappings) break;
  }
  return mark;
}

void HeldMemory::end(Table table, std::uint64_t key, std::uint64_t size, Mark mark,
                     bool succeeded) noexcept {
  if (mark == 0) return;
  const std::lock_guard lock(mutex_);
  Records& all = records(table);
  for (auto at = all.lower_bound(key); at != all.end() && at->first - key < size;) {
    if (at->second.ending == mark && succeeded) {
      at = erase(all, at);
    } else {
      if (at->second.ending == mark) at->second.ending = 0;
      ++at;
    }
  }
}

HeldMemory::Records::iterator HeldMemory::erase(Records& from, Records::iterator record) noexcept {
  const std::shared_ptr<const Piece> piece = std::move(record->second.piece);
  const bool last = piece.use_count() == 1;
  Device* const on = device(piece->device);
  if (last && piece->pool != 0) pools_[piece->pool - 1].allocated -= piece->bytes;
  if (last && on != nullptr) change(*on, on->bytes - piece->bytes);
  return from.erase(record);
}

/// A place is free when nothing of its pool is left.
HeldMemory::PoolId HeldMemory::pool(CUmemoryPool name, CUdevice index) noexcept {
  const std::lock_guard lock(mutex_);
  PoolId free = 0;
  for (PoolId i = 1; i <= pools_.size(); ++i) {
    const Pool& pool = pools_[i - 1];
    if (pool.name == name) return i;
    if (pool.name == nullptr && pool.ending == nullptr && pool.allocated == 0) free = i;
  }
  if (free == 0) {
    if (!if_memory_lasts([&] { pools_.emplace_back(); })) return 0;
    free = pools_.size();
    has_pools_.store(true);
  }
  pools_[free - 1] = {name, nullptr, index, 0, 0};
  return free;
}

CUdevice HeldMemory::device_of(PoolId pool) noexcept {
  const std::lock_guard lock(mutex_);
  return pools_[pool - 1].device;
}

void HeldMemory::begin_end_pool(CUmemoryPool name) noexcept {
  const std::lock_guard lock(mutex_);
  for (Pool& pool : pools_) {
    if (pool.name == name) pool.ending = std::exchange(pool.name, nullptr);
  }
}

void HeldMemory::end_pool(CUmemoryPool name, bool succeeded) noexcept {
  const std::lock_guard lock(mutex_);
  for (Pool& pool : pools_) {
    if (pool.ending != name) continue;
    pool.ending = nullptr;
    if (!succeeded) pool.name = name;
    if (Device* const on = device(pool.device)) change(*on, on->bytes);
  }
}

HeldMemory::PoolId HeldMemory::next_pool(PoolId behind, CUdevice index,
                                         CUmemoryPool& name) noexcept {
  const std::lock_guard lock(mutex_);
  for (PoolId i = behind + 1; i <= pools_.size(); ++i) {
    const Pool& pool = pools_[i - 1];
    name = pool.name;
    if (name == nullptr) continue;
    const bool keeps = pool.reserved > pool.allocated;
    if (index == kAll || pool.device == index) return i;
    if (index == kKeeping && keeps && bounds(device(pool.device))) return i;
  }
  return 0;
}

void HeldMemory::pool_has(PoolId id, CUmemoryPool name, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  Pool& pool = pools_[id - 1];
  if (pool.name != name) return;  // it has ended meanwhile
  pool.reserved = bytes;
  if (Device* const on = device(pool.device)) change(*on, on->bytes);
}

bool HeldMemory::waited_in_vain(CUdevice index) noexcept {
  const std::lock_guard lock(mutex_);
  const Device* const on = device(index);
  return on != nullptr && on->kept_in_vain != 0 && on->kept_in_vain == kept_on(index, 0);
}

void HeldMemory::note_vain_wait(CUdevice index) noexcept {
  const std::lock_guard lock(mutex_);
  if (Device* const on = device(index)) on->kept_in_vain = kept_on(index, 0);
}

std::uint64_t HeldMemory::kept(CUdevice index) noexcept {
  const std::lock_guard lock(mutex_);
  return kept_on(index, 0);
}

bool HeldMemory::is_bounded(CUdevice index) noexcept {
  const std::lock_guard lock(mutex_);
  return bounds(device(index));
}

bool HeldMemory::exceeds_limit(CUdevice index) noexcept {
  const std::lock_guard lock(mutex_);
  const Device* const on = device(index);
  return on != nullptr && on->bytes + kept_on(index, 0) > limit_of(*on);
}

/// What pools have that lose memory is asked for with the next call.
void HeldMemory::context_ended(const ContextId& context) noexcept {
  const std::lock_guard lock(mutex_);
  Records& all = records(Table::kAddresses);
  for (auto at = all.begin(); at != all.end();) {
    const Piece& piece = *at->second.piece;
    const bool ended = context.ends(piece.context);
    if (ended && piece.pool != 0) pools_[piece.pool - 1].reserved = 0;
    at = ended ? erase(all, at) : std::next(at);
  }
}

void HeldMemory::show_in(ClientSlot& client) noexcept {
  const std::lock_guard lock(mutex_);
  Device* const on = device(client.device());
  if (on == nullptr) return;
  on->client = &client;
  client.orders().count_refused_allocations(std::exchange(on->refused, 0));
  change(*on, on->bytes);
}

std::uint64_t HeldMemory::bytes_on(CUdevice index) noexcept {
  const std::lock_guard lock(mutex_);
  const Device* const on = device(index);
  return on == nullptr ? 0 : on->bytes + kept_on(index, 0);
}

std::uint64_t HeldMemory::limit(CUdevice index) noexcept {
  const std::lock_guard lock(mutex_);
  const Device* const on = device(index);
  return on == nullptr ? shm::kNoLimit : limit_of(*on);
}

std::uint64_t HeldMemory::left(CUdevice index) noexcept {
  const std::lock_guard lock(mutex_);
  const Device* const on = device(index);
  return on == nullptr ? shm::kNoLimit : left_of(index, std::min(limit_of(*on), grant_of(*on)));
}

}  // namespace sluice::intercept
