#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {

/// A session under device:200us on the recording driver, whose kernels are of known durations.
class Learning : public Session {
 protected:
  /// Whether no sample is under way, so that the poller makes no more queries.
  static bool settled() {
    const std::size_t before = fake::count(fake::Id::cuEventQuery);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return fake::count(fake::Id::cuEventQuery) == before;
  }

  /// Empties the account: a launch longer than the spacing, then a wait.
  void begin_anew() {
    kernel(kLong);
    fake::clear();
  }

  /// The same, and the account is empty: the program has waited for that launch.
  void begin_empty() {
    begin_anew();
    ASSERT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
  }

  static std::string order_of_calls() {
    std::string order;
    for (const fake::Call& call : fake::calls()) {
      if (call.id == fake::Id::cuLaunchKernel) order += static_cast<char>('0' + call.arguments[0]);
      if (call.id == fake::Id::cuStreamWaitValue64_v2) order += 'W';
    }
    return order;
  }

  static constexpr std::uintptr_t kShort = 1;  // 50 us
  static constexpr std::uintptr_t kLong = 2;   // 500 us
  void learn_both() {
    learn(kShort, 0.05F);
    learn(kLong, 0.5F);
  }
};

}  // namespace sluice::intercept::test
