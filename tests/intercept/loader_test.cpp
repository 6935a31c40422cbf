// A library's constructor runs with the loader's lock held, and may use the GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {
namespace {

using fake::Id;

std::atomic<bool> g_in_constructor{false};
std::atomic<CUstream> g_stream{nullptr};

class Loader : public Session {
 public:
  using Session::launch;
};

// Prevents: the thread that attaches opens the collector of a trace, for which it needs the
// loader's lock, while the constructor that has it waits for the end of the attach. Seen to fail
// with the trace begun under the lock of the attach.
TEST_F(Loader, AConstructorThatLaunchesWaitsForNobodyWhoLoads) {
  choose("gate");
  const std::string traces = own_session_.file("traces");
  std::filesystem::create_directory(traces);
  setenv("SLUICE_TRACE", traces.c_str(), 1);
  start_controller();
  g_stream.store(make_stream());
  fake::stall(Id::cuDeviceGetUuid_v2);
  std::atomic<int> done{0};
  std::thread([&] {
    launch(g_stream.load());
    ++done;
  }).detach();
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; })) << "nobody attaches";
  std::thread([&] {
    EXPECT_NE(dlopen(SLUICE_CALLING_LIBRARY, RTLD_NOW), nullptr) << dlerror();
    ++done;
  }).detach();
  ASSERT_TRUE(eventually([] { return g_in_constructor.load(); }));
  fake::unstall();
  if (!eventually([&] { return done.load() == 2; })) {
    ADD_FAILURE() << "the two threads wait for each other";
    _exit(1);  // at exit, the loader's lock is taken
  }
  EXPECT_EQ(launches(), 2U);
  EXPECT_FALSE(std::filesystem::is_empty(traces));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void sluice_test_in_constructor() {
  g_in_constructor.store(true);
  Loader::launch(g_stream.load());
}

}  // namespace sluice::intercept::test
