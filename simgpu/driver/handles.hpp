#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace sluice::simgpu {

// Objects by opaque handle. As in a real driver's heap, the last freed handle is given out first,
// so that code which uses a handle as an identity fails in tests. Thread-safe.
template <typename Handle, typename T>
class HandleTable {
 public:
  // `kind` makes handles of different tables differ.
  explicit HandleTable(std::uintptr_t kind) : base_(kind << 32) {}

  Handle add(std::shared_ptr<T> object) {
    const std::unique_lock lock(mutex_);
    std::size_t index = objects_.size();
    if (free_.empty()) {
      objects_.push_back(std::move(object));
    } else {
      index = free_.back();
      free_.pop_back();
      objects_[index] = std::move(object);
    }
    return reinterpret_cast<Handle>(base_ + ((index + 1) << 4));
  }

  std::shared_ptr<T> find(Handle handle) const {
    const std::shared_lock lock(mutex_);
    const std::size_t index = index_of(handle);
    return index < objects_.size() ? objects_[index] : nullptr;
  }

  std::shared_ptr<T> take(Handle handle) {
    const std::unique_lock lock(mutex_);
    const std::size_t index = index_of(handle);
    if (index >= objects_.size() || !objects_[index]) return nullptr;
    free_.push_back(index);
    return std::move(objects_[index]);
  }

  std::vector<std::shared_ptr<T>> all() const {
    const std::shared_lock lock(mutex_);
    return objects_;
  }

  template <typename Condition>
  void take_if(Condition&& condition) {
    std::vector<std::shared_ptr<T>> taken;  // destroyed after the lock is released
    const std::unique_lock lock(mutex_);
    for (std::size_t index = 0; index < objects_.size(); ++index) {
      if (!objects_[index] || !condition(*objects_[index])) continue;
      free_.push_back(index);
      taken.push_back(std::move(objects_[index]));
    }
  }

 private:
  [[nodiscard]] std::size_t index_of(Handle handle) const {
    const auto value = reinterpret_cast<std::uintptr_t>(handle);
    const std::uintptr_t offset = value - base_;
    if (value < base_ || offset >= (std::uintptr_t{1} << 32) || (offset & 15) != 0) return ~0U;
    return (offset >> 4) - 1;
  }

  std::uintptr_t base_;
  mutable std::shared_mutex mutex_;
  std::vector<std::shared_ptr<T>> objects_;
  std::vector<std::size_t> free_;
};

}  // namespace sluice::simgpu
