#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/service/service.hpp"

namespace sluice::server {

/// The memory that requests and responses may take together: bodies from the moment their size is
/// known until the request is answered, responses until they have been sent. Thread-safe.
class ByteBudget {
  struct Counter {
    std::uint64_t limit;
    std::atomic<std::uint64_t> used{0};
  };

 public:
  explicit ByteBudget(std::uint64_t limit) : counter_(std::make_shared<Counter>(limit)) {}

  /// Bytes that are taken from a budget until this object is destroyed. May outlive the budget.
  /// Not thread-safe.
  class Share {
   public:
    Share() = default;  ///< Of no budget, and of no bytes.
    explicit Share(const ByteBudget& budget) : counter_(budget.counter_) {}
    Share(Share&& other) noexcept
        : counter_(std::move(other.counter_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(counter_, other.counter_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() {
      if (counter_) counter_->used -= bytes_;
    }

    /// Takes or gives back so many bytes that `bytes` are held. Takes none and returns false if
    /// they do not fit. The share must have a budget.
    [[nodiscard]] bool resize(std::uint64_t bytes) {
      if (bytes > bytes_ && !take(bytes - bytes_)) return false;
      if (bytes < bytes_) counter_->used -= bytes_ - bytes;
      bytes_ = bytes;
      return true;
    }

   private:
    [[nodiscard]] bool take(std::uint64_t more) {
      // Never above the limit, not even for a moment: a request that does not fit must not push out
      // one that does.
      std::uint64_t used = counter_->used;
      do {
        if (more > counter_->limit - used) return false;
      } while (!counter_->used.compare_exchange_weak(used, used + more));
      return true;
    }

    std::shared_ptr<Counter> counter_;
    std::uint64_t bytes_ = 0;
  };

  [[nodiscard]] std::uint64_t used() const { return counter_->used; }

 private:
  std::shared_ptr<Counter> counter_;
};

/// The refusal of a request, or of a response, that does not fit into the budget.
[[nodiscard]] inline Status memory_full() {
  return {Code::kResourceExhausted,
          "requests and responses fill the memory they may use (--max-queue-mb)", 0, "memory"};
}

/// `storage`, which gives its share back when it is freed.
[[nodiscard]] inline std::shared_ptr<const void> counted(std::shared_ptr<const void> storage,
                                                         ByteBudget::Share share) {
  struct Counted {
    ByteBudget::Share share;  // First, so that it is given back last.
    std::shared_ptr<const void> storage;
  };
  return std::make_shared<Counted>(std::move(share), std::move(storage));
}

}  // namespace sluice::server
