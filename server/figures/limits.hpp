#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace sluice::server {

/// The time of all blocks of an execution on an idle device, by its number of items. A model may be
/// loaded, and so measured, while others run. So every shorter execution corrects the time: other
/// work makes an execution longer, never shorter. Thread-safe.
class Limits {
 public:
  /// Call it at least once before anything else.
  void measured(std::size_t items, std::uint64_t whole_ns);
  /// All blocks of an execution took this long together, without the time between them.
  void ran(std::size_t items, std::uint64_t whole_ns);

  /// Linear between the known numbers of items, and in proportion beyond.
  [[nodiscard]] std::uint64_t ns(std::size_t items) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::size_t, std::uint64_t> by_items_;
};

}  // namespace sluice::server
