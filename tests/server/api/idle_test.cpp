// Prevents: a server without requests that keeps a processor busy, for example with a thread that
// looks again and again for a call which is late.
#include <gtest/gtest.h>

#include <ctime>
#include <thread>

#include "base/clock.hpp"
#include "fake_service.hpp"
#include "server/api/grpc_server.hpp"
#include "server/api/http_server.hpp"

namespace sluice::server::api {
namespace {

TEST(Idle, AServerWithoutRequestsNeedsNoProcessor) {
  test::FakeService service;
  const GrpcServer grpc(service, {});
  const HttpServer http(service, {});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const std::uint64_t wall_ns = base::monotonic_ns();
  const std::uint64_t used_ns = base::clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const std::uint64_t used = base::clock_ns(CLOCK_PROCESS_CPUTIME_ID) - used_ns;
  RecordProperty("used_us", static_cast<int>(used / 1000));
  // A thread that never waits has more than this also on a busy machine.
  EXPECT_LT(used * 20, base::monotonic_ns() - wall_ns);
}

}  // namespace
}  // namespace sluice::server::api
