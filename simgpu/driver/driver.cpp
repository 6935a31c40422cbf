#include "simgpu/driver/driver.hpp"

#include <pthread.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>

#include "base/processes.hpp"

namespace sluice::simgpu {
namespace {

// The UUID of a device as nvidia-smi writes it, or as much of it as names only this one.
std::optional<unsigned> find_by_uuid(std::string_view start, const std::vector<unsigned>& devices) {
  std::optional<unsigned> found;
  for (const unsigned device : devices) {
    if (!base::format_uuid(uuid_of(device)).starts_with(start)) continue;
    if (found) return std::nullopt;
    found = device;
  }
  return found;
}

std::optional<unsigned> find_device(std::string_view name, const std::vector<unsigned>& devices) {
  if (name.starts_with("GPU-")) return find_by_uuid(name, devices);
  unsigned ordinal = 0;
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data(), end, ordinal);
  const bool is_number = read.ec == std::errc{} && read.ptr == end;
  return is_number && ordinal < devices.size() ? std::optional(devices[ordinal]) : std::nullopt;
}

// What CUDA_VISIBLE_DEVICES leaves of the devices: ordinals and UUIDs up to the first invalid one,
// as the real driver reads it.
std::vector<unsigned> select(const std::vector<unsigned>& devices, std::string_view list) {
  std::vector<unsigned> selected;
  while (!list.empty()) {
    const std::string_view name = list.substr(0, list.find(','));
    list.remove_prefix(std::min(name.size() + 1, list.size()));
    const std::optional<unsigned> device = find_device(name, devices);
    if (!device) break;
    selected.push_back(*device);
  }
  return selected;
}

std::vector<unsigned> visible_devices(unsigned count, const Mps& mps) {
  std::vector<unsigned> visible(count);
  std::iota(visible.begin(), visible.end(), 0U);
  if (mps.visible_devices()) visible = select(visible, *mps.visible_devices());
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  return list == nullptr ? visible : select(visible, list);
}

// The child of a fork has no driver: its calls fail as on the real driver, and it must not keep the
// parent's connection open.
void detach_child() {
  driver().ready = false;
  driver().forked = true;
  driver().connection.abandon();
}

}  // namespace

Driver& driver() {
  static Driver& only = *std::make_unique<Driver>().release();
  return only;
}

CUresult Driver::initialise() {
  if (forked) return CUDA_ERROR_NOT_INITIALIZED;
  const std::lock_guard lock(init_mutex);
  if (ready) return CUDA_SUCCESS;
  if (!connection.is_open()) {
    if (!connection.open()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    pthread_atfork(nullptr, nullptr, detach_child);
  }
  if (const CUresult status = mps.join(connection); status != CUDA_SUCCESS) return status;
  visible = visible_devices(connection.gpu().devices, mps);
  if (visible.empty()) return CUDA_ERROR_NO_DEVICE;
  ready.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult find_stream(CUstream handle, std::shared_ptr<Stream>& stream) {
  thread_local std::map<std::uint32_t, std::shared_ptr<Stream>> own_default_streams;
  const bool by_context =
      handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
  if (!by_context) {
    stream = driver().streams.find(handle);
    return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  const std::shared_ptr<Context> context = current_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (handle == CU_STREAM_PER_THREAD) {
    auto& own = own_default_streams[context->id];
    if (!own) own = make_stream(driver().channels, context, ChannelKind::kBlocking, 0);
    stream = own;
  } else {
    const std::lock_guard lock(context->mutex);
    stream = context->legacy;
  }
  return stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace sluice::simgpu

using sluice::simgpu::driver;

CUresult cuInit(unsigned int Flags) {
  return Flags != 0 ? CUDA_ERROR_INVALID_VALUE : driver().initialise();
}

CUresult cuDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = 13000;
  return CUDA_SUCCESS;
}
