#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/memory/device_context.hpp"

namespace sluice::test {

/// A driver whose device memory is memory of this process, so that tests see what is where. Copies
/// are made when the test lets them. One at a time.
class FakeDriver {
 public:
  FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;
  ~FakeDriver();

  [[nodiscard]] std::shared_ptr<const engine::DeviceContext> context() const { return context_; }

  /// cuMemCreate and cuMemAlloc fail beyond this many bytes.
  void set_capacity(std::uint64_t bytes);
  /// This entry fails from now on with CUDA_ERROR_UNKNOWN; empty: none.
  void fail(const std::string& entry);
  /// Copies wait for let_copies(); by default they are made at once.
  void hold_copies();
  /// Makes the next `count` copies that wait.
  void let_copies(std::size_t count);

  [[nodiscard]] std::uint64_t held_bytes() const;      ///< Of cuMemCreate and cuMemAlloc.
  [[nodiscard]] std::uint64_t mapped_bytes() const;    ///< Of cuMemMap.
  [[nodiscard]] std::uint64_t reserved_bytes() const;  ///< Of cuMemAddressReserve.
  [[nodiscard]] std::uint64_t host_bytes() const;      ///< Of cuMemHostAlloc.
  [[nodiscard]] std::uint64_t copied_bytes() const;    ///< By cuMemcpyHtoDAsync.
  /// The waits of streams for events that had not happened.
  [[nodiscard]] int waits() const;
  [[nodiscard]] int objects() const;  ///< Streams and events that exist.

  static constexpr std::uint64_t kGranularity = 2ULL << 20;

 private:
  engine::MemoryDriver driver_;
  std::shared_ptr<const engine::DeviceContext> context_;
};

}  // namespace sluice::test
