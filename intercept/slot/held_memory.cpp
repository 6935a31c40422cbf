#include "intercept/slot/held_memory.hpp"

#include <algorithm>
#include <iterator>

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
  if (device.client != nullptr) shm::note_held(device.client->slot().memory, bytes);
}

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

/// More threads than there are places allocate beyond what the grant leaves them, for one call.
bool HeldMemory::reserve(CUdevice index, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const Device* const on = device(index);
  if (on == nullptr) return true;
  Reservation* place = own_reservation();
  if (place != nullptr) *place = {};
  if (on->client != nullptr && on->client->priority() == 0) {
    Orders& orders = on->client->orders();
    const std::uint64_t grant = orders.limit();
    const auto exceeds = [&] {
      const std::uint64_t taken = on->bytes + reserved_on(index);
      return grant != shm::kNoLimit && bytes > (grant > taken ? grant - taken : 0);
    };
    if (exceeds()) forget_reservations_of_ended_threads();
    if (exceeds() && !orders.may_exceed()) return false;
  }
  if (place == nullptr) {
    forget_reservations_of_ended_threads();
    place = own_reservation();
  }
  if (place != nullptr) *place = {thread_id(), index, bytes};
  return true;
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
    records(table).emplace(key, Record{made, 1, 0, 0, ++last_record_});
    if (Reservation* const own = own_reservation()) *own = {};
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
    records(table).emplace(key, Record{std::move(piece), size, 0, 0, ++last_record_});
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
  if (last && on != nullptr) change(*on, on->bytes - piece->bytes);
  return from.erase(record);
}

std::uint64_t HeldMemory::last_record() noexcept {
  const std::lock_guard lock(mutex_);
  return last_record_;
}

void HeldMemory::context_ended(CUcontext context, std::uint64_t last) noexcept {
  const std::lock_guard lock(mutex_);
  Records& all = records(Table::kAddresses);
  for (auto at = all.begin(); at != all.end();) {
    const CUcontext of = at->second.piece->context;
    const bool ended = at->second.number <= last && (context == nullptr || of == context);
    at = ended ? erase(all, at) : std::next(at);
  }
}

void HeldMemory::show_in(ClientSlot& client) noexcept {
  const std::lock_guard lock(mutex_);
  Device* const on = device(client.device());
  if (on == nullptr) return;
  on->client = &client;
  change(*on, on->bytes);
}

std::uint64_t HeldMemory::bytes_on(CUdevice index) noexcept {
  const std::lock_guard lock(mutex_);
  const Device* const on = device(index);
  return on == nullptr ? 0 : on->bytes;
}

}  // namespace sluice::intercept
