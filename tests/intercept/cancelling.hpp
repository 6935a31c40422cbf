#pragma once
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <thread>

#include "intercept/driver/threads.hpp"
#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {

/// Cancels a thread that is inside `call`, and waits for its end: in front of what the driver does,
/// or behind it, as `stall` says.
template <class Call>
void cancel_inside(fake::Id id, Call call, void (*stall)(fake::Id) = &fake::stall) {
  stall(id);
  std::atomic<pid_t> thread{0};
  std::thread inside([&] {
    thread.store(gettid());
    call();
  });
  EXPECT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  EXPECT_EQ(pthread_cancel(inside.native_handle()), 0);
  EXPECT_TRUE(eventually([&] { return ThreadMarks::is_gone(thread.load()); }))
      << "not cancelled inside the call";
  fake::unstall();
  inside.join();
}

}  // namespace sluice::intercept::test
