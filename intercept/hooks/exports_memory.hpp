#pragma once
// The hooks of calls that take and give back device memory, and of those that tell how much there
// is, for exports.cpp only: see HeldMemory.
//
// These calls can wait for the GPU, so a thread may be cancelled in them, and no object with a
// destructor lives across them (see exports.hpp).
#include <algorithm>
#include <atomic>
#include <optional>

#include "intercept/client/interposer.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/pacing/captures.hpp"
#include "intercept/slot/held_memory.hpp"

namespace sluice::intercept {

using Table = HeldMemory::Table;

/// Null if there is no memory for it. The caller has asked in_forked_child(), which makes a system
/// call.
inline HeldMemory* held_memory_no_child() noexcept {
  HeldMemory* held = nullptr;
  if_memory_lasts([&] { held = &Interposer::instance().held_memory(); });
  return held;
}

/// Null if nothing of ours may run, or if there is no memory for it.
inline HeldMemory* held_memory() noexcept {
  return in_forked_child() ? nullptr : held_memory_no_child();
}

/// The device of a context; -1 if nothing of ours may run, or if there is no context.
inline CUdevice device_that_counts(CUcontext context) noexcept {
  return context == nullptr || in_forked_child() ? -1 : device_of(context);
}

/// held_memory() for a call that takes memory of a device, or asks how much there is; null for no
/// device. If there may be a limit, the client attaches first: only the controller knows that of a
/// site, and users look for theirs in `sluice status`. The caller has asked in_forked_child().
inline HeldMemory* limited_memory(CUdevice device) noexcept {
  HeldMemory* const held = device < 0 ? nullptr : held_memory_no_child();
  if (held != nullptr && Interposer::instance().may_limit_memory()) {
    Interposer::instance().client_on(device, true);
  }
  return held;
}

// --- Memory pools --------------------------------------------------------------------------------

/// The device's pools give back what they keep and nobody uses.
inline void trim_pools(HeldMemory& held, CUdevice device) noexcept {
  held.ask_pools(device, [](CUmemoryPool pool) {
    if (driver().cuMemPoolTrimTo != nullptr) driver().cuMemPoolTrimTo(pool, 0);
    return reserved_by(pool);
  });
}

/// Until `fits` is true, or for as long as it may become true: streams come to what they free. For
/// 5 s at most, because the program may have to do something for that.
template <class Fits>
void make_room(HeldMemory& held, CUdevice device, Fits fits) noexcept {
  if (fits() || held.kept(device) == 0) return;
  trim_pools(held, device);
  if (fits() || held.waited_in_vain(device)) return;
  Client* const client = Interposer::instance().clients().of(device);
  const Waited waited = wait_for_driver(
      [&] {
        trim_pools(held, device);
        return fits() || held.kept(device) == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
      },
      [client] { return client != nullptr && client->obeys() && client->gate_closed(); });
  if (waited != Waited::kDone) held.note_vain_wait(device);
}

/// The pool that gives a stream of the device memory, if the call names none; null if the driver
/// does not say.
inline CUmemoryPool current_pool(CUdevice device) noexcept {
  CUmemoryPool pool = nullptr;
  const bool told = driver().cuDeviceGetMemPool != nullptr &&
                    driver().cuDeviceGetMemPool(&pool, device) == CUDA_SUCCESS;
  return told ? pool : nullptr;
}

/// Whether the pool has grown beyond the limit for the piece at `at`. Then the piece is given back.
inline bool must_give_back(HeldMemory& held, CUdevice device, CUdeviceptr at,
                           CUstream stream) noexcept {
  if (!held.is_bounded(device)) return false;
  held.ask_pools(device, &reserved_by);
  if (!held.exceeds_limit(device)) return false;
  const HeldMemory::Mark mark = held.begin_end(Table::kAddresses, at);
  const bool freed = driver().cuMemFreeAsync(at, stream) == CUDA_SUCCESS;
  held.end(Table::kAddresses, at, 1, mark, freed);
  return freed;
}

/// Where an allocation of a stream comes from.
struct Source {
  HeldMemory* held = nullptr;  ///< Null: nothing counts.
  HeldMemory::Piece piece;
};

/// `pool`: null for the current one of the stream's device. One of another device, or of the host,
/// may serve the stream too.
inline Source source_of(CUstream stream, CUmemoryPool pool, std::uint64_t bytes) noexcept {
  const CUcontext context = context_of(stream);
  const CUdevice device = device_that_counts(context);
  HeldMemory* const held = device < 0 ? nullptr : held_memory_no_child();
  if (held == nullptr) return {};
  if (pool == nullptr) pool = current_pool(device);
  const HeldMemory::PoolId known = pool == nullptr ? 0 : held->pool(pool, device);
  const CUdevice of = known == 0 ? device : held->device_of(known);
  return {limited_memory(of), {of, bytes, identify(context), known}};
}

/// In a capture, the call only adds a node to a graph. Whether the pool grows shows after the call.
template <class Call>
CUresult allocate_in(CUstream stream, CUmemoryPool pool, std::uint64_t bytes, const CUdeviceptr* at,
                     Call call) {
  if (any_capture_open() && is_capturing(stream)) return call();
  const Source from = source_of(stream, pool, bytes);
  if (from.held == nullptr) return call();
  HeldMemory& held = *from.held;
  const HeldMemory::Piece& piece = from.piece;
  make_room(held, piece.device, [&] { return held.fits(piece.device, bytes, piece.pool); });
  for (bool again = true;; again = false) {
    if (!held.reserve(piece.device, bytes, piece.pool)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = call();
    if (result != CUDA_SUCCESS || at == nullptr) {
      held.unreserve();
      return result;
    }
    held.add(Table::kAddresses, *at, piece);
    if (!must_give_back(held, piece.device, *at, stream)) return result;
    const auto fits = [&] { return held.fits(piece.device, bytes); };
    if (again) make_room(held, piece.device, fits);
    if (again && fits()) continue;
    held.refuse(piece.device, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

/// `call` allocates `bytes`, and then `at` has their address.
template <class Call>
CUresult allocate(CUcontext context, std::uint64_t bytes, const CUdeviceptr* at, Call call) {
  const CUdevice device = device_that_counts(context);
  HeldMemory* const held = limited_memory(device);
  if (held == nullptr) return call();
  make_room(*held, device, [&] { return held->fits(device, bytes); });
  if (!held->reserve(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = call();
  if (result == CUDA_SUCCESS && at != nullptr) {
    held->add(Table::kAddresses, *at, {device, bytes, identify(context)});
  } else {
    held->unreserve();
  }
  return result;
}

/// After a free of memory that may be that of a pool.
inline void what_pools_have() noexcept {
  Interposer* const self = Interposer::existing();
  if (self == nullptr || !self->held_memory().has_pools() || in_forked_child()) return;
  self->refresh_pools(HeldMemory::kKeeping);
}

/// `call` ends what `key` names.
template <class Call>
CUresult give_back(Table table, std::uint64_t key, std::uint64_t size, Call call) {
  HeldMemory* const held = held_memory();
  if (held == nullptr) return call();
  const HeldMemory::Mark mark = held->begin_end(table, key, size);
  const CUresult result = call();
  held->end(table, key, size, mark, result == CUDA_SUCCESS);
  return result;
}

// --- Memory with an address ----------------------------------------------------------------------

template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemory>, Real real, CUdeviceptr* at, std::size_t bytes) {
  return allocate(current_context(), bytes, at, [&] { return (*real)(at, bytes); });
}

/// Managed memory counts as memory of the device, wherever its pages are.
template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemory>, Real real, CUdeviceptr* at, std::size_t bytes, unsigned flags) {
  return allocate(current_context(), bytes, at, [&] { return (*real)(at, bytes, flags); });
}

/// How much a row takes is known after the call. What exceeds limit or grant then is freed again.
template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemory>, Real real, CUdeviceptr* at, std::size_t* pitch, std::size_t width,
              std::size_t height, unsigned element) {
  const CUcontext context = current_context();
  const CUdevice device = device_that_counts(context);
  HeldMemory* const held = limited_memory(device);
  if (held == nullptr) return (*real)(at, pitch, width, height, element);
  make_room(*held, device, [&] { return held->fits(device, width * height); });
  if (!held->reserve(device, width * height)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = (*real)(at, pitch, width, height, element);
  const bool done = result == CUDA_SUCCESS && at != nullptr && pitch != nullptr;
  if (!done) {
    held->unreserve();
    return result;
  }
  if (held->reserve(device, *pitch * height)) {
    held->add(Table::kAddresses, *at, {device, *pitch * height, identify(context)});
    return result;
  }
  driver().cuMemFree_v2(*at);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemory>, Real real, CUdeviceptr* at, std::size_t bytes, CUstream stream) {
  return allocate_in(named<entry>(stream), nullptr, bytes, at,
                     [&] { return (*real)(at, bytes, stream); });
}
template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemory>, Real real, CUdeviceptr* at, std::size_t bytes, CUmemoryPool pool,
              CUstream stream) {
  return allocate_in(named<entry>(stream), pool, bytes, at,
                     [&] { return (*real)(at, bytes, pool, stream); });
}

template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemory>, Real real, CUdeviceptr at, CUstream stream) {
  const CUstream in = named<entry>(stream);
  if (any_capture_open() && is_capturing(in)) return (*real)(at, stream);
  const CUresult result = give_back(Table::kAddresses, at, 1, [&] { return (*real)(at, stream); });
  what_pools_have();
  return result;
}

/// A pool whose memory is that of the host has no limit.
template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemory>, Real real, CUmemoryPool* pool, const CUmemPoolProps* props) {
  const CUresult result = (*real)(pool, props);
  const bool made = result == CUDA_SUCCESS && pool != nullptr && props != nullptr;
  HeldMemory* const held = made ? held_memory() : nullptr;
  if (held == nullptr) return result;
  held->begin_end_pool(*pool);  // one of that name that ended unseen
  held->end_pool(*pool, true);
  const bool on_device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  static_cast<void>(held->pool(*pool, on_device ? props->location.id : -1));
  return result;
}

/// What is allocated lives on, and its pool with it, without the name.
template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemory>, Real real, CUmemoryPool pool) {
  HeldMemory* const held = held_memory();
  if (held == nullptr) return (*real)(pool);
  held->begin_end_pool(pool);
  const CUresult result = (*real)(pool);
  held->end_pool(pool, result == CUDA_SUCCESS);
  return result;
}

/// An address for cuMemFree, a handle for cuMemRelease: one type in cuda.h.
template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemory>, Real real, unsigned long long what) {
  constexpr bool kHandle = entry == Entry::cuMemRelease;
  const CUresult result = give_back(kHandle ? Table::kHandles : Table::kAddresses, what, 1,
                                    [&] { return (*real)(what); });
  if (!kHandle) what_pools_have();
  return result;
}

// --- Physical memory: it lives as long as a handle or a mapping
// -----------------------------------

template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemory>, Real real, CUmemGenericAllocationHandle* handle, std::size_t bytes,
              const CUmemAllocationProp* prop, unsigned long long flags) {
  const bool on_device =
      prop != nullptr && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !in_forked_child();
  HeldMemory* const held = on_device ? limited_memory(prop->location.id) : nullptr;
  if (held == nullptr) return (*real)(handle, bytes, prop, flags);
  const CUdevice device = prop->location.id;
  make_room(*held, device, [&] { return held->fits(device, bytes); });
  if (!held->reserve(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = (*real)(handle, bytes, prop, flags);
  if (result == CUDA_SUCCESS && handle != nullptr) {
    held->add(Table::kHandles, *handle, {device, bytes, {}});
  } else {
    held->unreserve();
  }
  return result;
}

template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemory>, Real real, CUdeviceptr at, std::size_t size, std::size_t offset,
              CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const CUresult result = (*real)(at, size, offset, handle, flags);
  HeldMemory* const held = result == CUDA_SUCCESS ? held_memory() : nullptr;
  if (held != nullptr) held->add_record(Table::kMappings, at, size, Table::kHandles, handle);
  return result;
}

template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemory>, Real real, CUdeviceptr at, std::size_t size) {
  return give_back(Table::kMappings, at, size, [&] { return (*real)(at, size); });
}

template <Entry entry, class Real, class... Args>
CUresult hook(Of<Kind::kConnect>, Real real, Args... args) {
  const CUresult result = (*real)(args...);
  if (result == CUDA_SUCCESS) g_process.connected.store(true);
  return result;
}

/// One more reference to physical memory that this process made. Memory of another process counts
/// there.
template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemory>, Real real, CUmemGenericAllocationHandle* handle, void* from,
              CUmemAllocationHandleType type) {
  const CUresult result = (*real)(handle, from, type);
  if (result == CUDA_SUCCESS) g_process.connected.store(true);
  HeldMemory* const held = result == CUDA_SUCCESS && handle != nullptr ? held_memory() : nullptr;
  if (held != nullptr) held->add_record(Table::kHandles, *handle, 1, Table::kHandles, *handle);
  return result;
}
/// The address of a mapping whose handles may all have been released.
template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemory>, Real real, CUmemGenericAllocationHandle* handle, void* mapped) {
  const CUresult result = (*real)(handle, mapped);
  HeldMemory* const held = result == CUDA_SUCCESS && handle != nullptr ? held_memory() : nullptr;
  if (held == nullptr) return result;
  if (held->knows(Table::kHandles, *handle)) {
    held->add_record(Table::kHandles, *handle, 1, Table::kHandles, *handle);
  } else {
    held->add_record(Table::kHandles, *handle, 1, Table::kMappings,
                     reinterpret_cast<std::uint64_t>(mapped));
  }
  return result;
}

// --- How much there is
// ----------------------------------------------------------------------------

/// Of the current context's device. A program that shares out what is free, or a part of the total,
/// must find what its limit leaves it.
template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemoryInfo>, Real real, std::size_t* free, std::size_t* total) {
  const CUresult result = (*real)(free, total);
  if (result != CUDA_SUCCESS) return result;
  const CUdevice device = device_that_counts(current_context());
  HeldMemory* const held = limited_memory(device);
  if (held == nullptr) return result;
  Interposer::instance().refresh_pools();
  if (total != nullptr) *total = std::min<std::uint64_t>(*total, held->limit(device));
  if (free != nullptr) *free = std::min<std::uint64_t>(*free, held->left(device));
  return result;
}

/// Programs ask for every device, also for those that they will not use, and before the driver has
/// registered its exit handlers. So this call neither attaches nor makes the interposer.
template <Entry entry, class Real>
CUresult hook(Of<Kind::kMemoryInfo>, Real real, std::size_t* total, CUdevice device) {
  const CUresult result = (*real)(total, device);
  if (result == CUDA_SUCCESS && total != nullptr && !in_forked_child()) {
    Interposer* const self = Interposer::existing();
    const std::uint64_t limit =
        self != nullptr ? self->held_memory().limit(device) : memory_limit_of_environment();
    if (limit != 0) *total = std::min<std::uint64_t>(*total, limit);
  }
  return result;
}

}  // namespace sluice::intercept
