// Policy device:Tus on the recording driver: all streams share one account, which says where the
// waits go.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/intercept/learning.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using fake::Id;
using shm::Count;

using Accounts = Learning;

// What may still run when the gate closes is the sum over all streams.
TEST_F(Accounts, AllStreamsHaveOneAccount) {
  attach("device:200us");
  outrank();
  learn_both();
  CUstream one = make_stream();
  CUstream other = make_stream();
  begin_anew();
  kernel(kShort);  // the legacy stream's account is 50 us from here on
  fake::clear();
  kernel(kShort, one);
  kernel(kShort, other);
  kernel(kShort, one);
  EXPECT_EQ(order_of_calls(), "111");
  kernel(kShort, other);
  EXPECT_EQ(order_of_calls(), "111W1");
}

// Prevents: a program with many streams has a wait in front of each kernel, though it waits for its
// work itself. On an H200, 100 such threads had 22 % of their speed, and the critical job a p99 of
// 18 instead of 2.5 ms.
TEST_F(Accounts, WhatTheProgramHasWaitedForHasRun) {
  attach("device:200us");
  outrank();
  learn_both();
  std::vector<CUstream> streams;
  for (int i = 0; i < 20; ++i) streams.push_back(make_stream());
  begin_empty();
  for (CUstream stream : streams) {
    kernel(kShort, stream);
    kernel(kShort, stream);
    ASSERT_EQ(::cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
  EXPECT_EQ(order_of_calls(), std::string(40, '1'));
  for (int i = 0; i < 4; ++i) kernel(kShort, streams[i]);
  EXPECT_EQ(order_of_calls(), std::string(44, '1'));
  ASSERT_EQ(::cuStreamSynchronize(streams[0]), CUDA_SUCCESS);
  kernel(kShort, streams[4]);
  kernel(kShort, streams[5]);
  EXPECT_EQ(order_of_calls(), std::string(45, '1') + "W1") << "one of the four has run";
  ASSERT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
  fake::clear();
  for (int i = 0; i < 5; ++i) kernel(kShort, streams[i]);
  EXPECT_EQ(order_of_calls(), "1111W1");
}

// A wait that fails says nothing about the work; nor does one for what came before a wait on the
// gate.
TEST_F(Accounts, WhatTheProgramHasWaitedForInVainMayRun) {
  attach("device:200us");
  outrank();
  learn_both();
  CUstream stream = make_stream();
  begin_empty();
  for (int i = 0; i < 4; ++i) kernel(kShort, stream);
  fake::answer(Id::cuStreamSynchronize, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_NE(::cuStreamSynchronize(stream), CUDA_SUCCESS);
  fake::answer(Id::cuCtxSynchronize, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_NE(::cuCtxSynchronize(), CUDA_SUCCESS);
  kernel(kShort, stream);
  EXPECT_EQ(order_of_calls(), "1111W1");
}

// Prevents: work that is given to a stream, or a context, while another thread waits for what came
// before counts as done; or an account that is less than empty.
TEST_F(Accounts, WhatIsGivenDuringAWaitMayRun) {
  attach("device:200us");
  outrank();
  learn_both();
  CUstream stream = make_stream();
  begin_empty();
  CUcontext context = nullptr;
  ASSERT_EQ(::cuCtxGetCurrent(&context), CUDA_SUCCESS);
  const auto during = [&](Id id, auto wait, int launches) {
    fake::stall(id);
    std::thread waiting([&] {
      ::cuCtxSetCurrent(context);
      EXPECT_EQ(wait(), CUDA_SUCCESS);
    });
    EXPECT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
    for (int i = 0; i < launches; ++i) kernel(kShort, stream);
    fake::unstall();
    waiting.join();
  };
  kernel(kShort, stream);
  kernel(kShort, stream);
  during(
      Id::cuStreamSynchronize, [&] { return ::cuStreamSynchronize(stream); }, 3);
  for (int i = 0; i < 4; ++i) kernel(kShort, stream);
  EXPECT_EQ(order_of_calls(), "1111W1111W1") << "the first wait on the gate began a new account";
  during(
      Id::cuStreamSynchronize, [&] { return ::cuStreamSynchronize(stream); }, 1);
  for (int i = 0; i < 4; ++i) kernel(kShort, stream);
  EXPECT_EQ(order_of_calls(), "1111W1111W11111W1") << "what came before the wait has run";
  during(
      Id::cuCtxSynchronize, [] { return ::cuCtxSynchronize(); }, 2);
  kernel(kShort, stream);
  kernel(kShort, stream);
  EXPECT_EQ(order_of_calls(), "1111W1111W11111W1111W1");
}

// What may still run when the gate closes: the spacing, and of each stream one kernel, or a fifth
// of the spacing if its kernels are shorter. Waits take a tenth of the launches of 2 us.
TEST_F(Accounts, RandomStreamsKeepTheBoundAndPayLittleForIt) {
  attach("device:200us");
  outrank();
  learn(kLong, 0.5F);
  std::mt19937 random(7);
  for (std::uintptr_t board = 10; board < 30; ++board) {
    const double us = std::array{2, 7, 13, 50}[board % 4];
    learn(board, static_cast<float>(us / 1000));
    const std::size_t count = 1 + random() % 40;
    std::vector<CUstream> streams;
    std::map<CUstream, double> may_run;
    for (std::size_t i = 0; i < count; ++i) streams.push_back(make_stream());
    begin_empty();
    const unsigned syncs = random() % 3;
    std::size_t waits = 0;
    constexpr std::size_t kLaunches = 2000;
    for (std::size_t i = 0; i < kLaunches; ++i) {
      CUstream stream = streams[random() % count];
      if (random() % 10 < syncs) {
        ASSERT_EQ(::cuStreamSynchronize(stream), CUDA_SUCCESS);
        may_run[stream] = 0;
      }
      fake::clear();
      kernel(board, stream);
      const bool waited = fake::count(Id::cuStreamWaitValue64_v2) != 0;
      waits += waited ? 1 : 0;
      may_run[stream] = waited ? us : may_run[stream] + us;
      double sum = 0;
      for (const auto& [_, of] : may_run) sum += of;
      ASSERT_LE(sum, 200 + std::max(40.0, us) * static_cast<double>(count)) << board << ' ' << i;
    }
    EXPECT_LE(static_cast<double>(waits), (us > 20 ? 1 : (us + 2) / 20) * kLaunches) << board;
    for (CUstream stream : streams) ASSERT_EQ(::cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  }
}

// Work that a stream was given long ago, in a warm-up for example, has run. Seen to fail, with a
// wait in front of every launch, when it stayed in the account indefinitely.
TEST_F(Accounts, AStreamOfThePastSpendsNothing) {
  attach("device:200us");
  outrank();
  learn(kShort, 0.05F);
  kernel(kLong, make_stream());
  EXPECT_TRUE(eventually([&] {
    std::this_thread::sleep_for(5ms);
    fake::clear();
    for (int i = 0; i < 8; ++i) kernel(kShort);
    return fake::count(Id::cuStreamWaitValue64_v2) == 2;
  }));
}

// Its work cannot run while the gate is closed, however long that is.
TEST_F(Accounts, AStreamBehindTheClosedGateStaysInTheAccount) {
  attach("device:200us");
  Critical& critical = outrank();
  learn(kShort, 0.05F);
  kernel(kLong, make_stream());
  critical.begin();
  for (int i = 0; i < 60; ++i) {
    kernel(kShort);
    std::this_thread::sleep_for(5ms);
  }
  fake::clear();
  for (int i = 0; i < 4; ++i) kernel(kShort);
  EXPECT_EQ(order_of_calls(), "W1W1W1W1");
}

// A program that makes a stream for each request would have a wait for each launch soon.
TEST_F(Accounts, AStreamThatEndsGivesItsTimeBack) {
  attach("device:200us");
  outrank();
  learn_both();
  CUstream stream = make_stream();
  kernel(kLong, stream);
  ASSERT_EQ(::cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  begin_anew();
  for (int i = 0; i < 5; ++i) kernel(kShort);
  EXPECT_EQ(order_of_calls(), "W1111W1");
}

// Prevents: a wait in front of each of many short graphs, which take half of their speed.
TEST_F(Accounts, AShortGraphSharesTheSpacing) {
  attach("device:200us");
  outrank();
  learn(kLong, 0.5F);
  const auto graph = reinterpret_cast<CUgraphExec>(0x10);
  fake::set_elapsed(0.03F);
  EXPECT_TRUE(eventually([&] {
    begin_anew();
    std::this_thread::sleep_for(1ms);
    for (int i = 0; i < 12; ++i) ::cuGraphLaunch(graph, nullptr);
    return fake::count(Id::cuStreamWaitValue64_v2) == 2;
  })) << "behind the long kernel, and after six of 30 us";
}

}  // namespace
}  // namespace sluice::intercept::test
