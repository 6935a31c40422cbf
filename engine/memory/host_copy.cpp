#include "engine/memory/host_copy.hpp"

#include <map>
#include <mutex>

#include "base/error.hpp"

namespace sluice::engine {

HostCopy::HostCopy(std::shared_ptr<const DeviceContext> context, std::size_t bytes)
    : context_(std::move(context)), size_(bytes) {
  const DeviceContext::Current current(*context_);
  void* data = nullptr;
  if (bytes > 0) {
    SLUICE_DRIVER(context_->driver(), cuMemHostAlloc(&data, bytes, CU_MEMHOSTALLOC_PORTABLE));
  }
  data_ = static_cast<std::byte*>(data);
}

HostCopy::~HostCopy() {
  if (data_ == nullptr) return;
  try {
    const DeviceContext::Current current(*context_);
    context_->driver().cuMemFreeHost(data_);
  } catch (const base::RunError&) {
    // Only with a lost context. The end of the process frees the memory.
  }
}

std::shared_ptr<const HostCopy> shared_host_copy(
    const std::shared_ptr<const DeviceContext>& context, const std::string& key, std::size_t bytes,
    const std::function<void(std::span<std::byte>)>& fill) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const HostCopy>> copies;
  const std::lock_guard lock(mutex);
  std::erase_if(copies, [](const auto& entry) { return entry.second.expired(); });
  if (const auto known = copies[key].lock()) {
    if (known->bytes().size() == bytes) return known;
    throw base::RunError(key +
                         " has changed since another model was made from it; unload that "
                         "model first");
  }
  auto made = std::make_shared<const HostCopy>(context, bytes);
  fill(made->bytes());
  copies[key] = made;
  return made;
}

}  // namespace sluice::engine
