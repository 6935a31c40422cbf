// What is kept of streams: under which key a record is found, and how many records there are.
#include "intercept/pacing/streams.hpp"

#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <set>
#include <thread>
#include <vector>

#include "intercept/driver/threads.hpp"
#include "tests/intercept/own_client.hpp"

namespace sluice::intercept::test {
namespace {

template <class Handle>
Handle handle(std::uintptr_t number) {
  return reinterpret_cast<Handle>(number);
}

/// Only their addresses matter here.
template <class Type>
Type& some(std::size_t which) {
  static std::array<std::uint64_t, 4> places{};
  return *reinterpret_cast<Type*>(&places.at(which));
}

class StreamRecords : public testing::Test {
 protected:
  Stream* add(const Stream::Key& key, CUcontext context, std::size_t client = 0) {
    return streams_.add(key, ContextId{context}, pools_, some<Client>(client), some<Pacer>(client));
  }
  static Stream::Key key(std::uintptr_t stream) { return {handle<CUstream>(stream), nullptr, 0}; }
  /// The record of the calling thread's default stream.
  Stream* of_this_thread(CUcontext context) {
    return add(Streams::key_of(CU_STREAM_PER_THREAD, context), context);
  }
  void end(Stream* taken) {
    for (Stream* stream = taken; stream != nullptr; stream = stream->next)
      stream->lives.store(false);
    streams_.reuse(taken);
  }

  Streams streams_;
  ContextEvents pools_{idle_worker()};
  const CUcontext one_ = handle<CUcontext>(1);
  const CUcontext other_ = handle<CUcontext>(2);
};

// Prevents: the driver gives the handle of a dead stream out again, and the new stream gets the
// record of the dead one, with its events.
TEST_F(StreamRecords, ARecordThatWasTakenOutIsNotFound) {
  Stream* const first = add(key(16), one_);
  Stream* const kept = add(key(32), other_);
  Stream* const taken = streams_.take_out(ContextId{one_});
  EXPECT_EQ(taken, first);
  EXPECT_EQ(taken->next, nullptr);
  EXPECT_EQ(streams_.find(key(16)), nullptr);
  Stream* const next = add(key(16), other_);
  EXPECT_NE(next, first) << "it has not ended yet";
  end(taken);
  EXPECT_EQ(add(key(48), one_), first) << "reused once it has ended";
  EXPECT_TRUE(first->lives.load());
  EXPECT_EQ(streams_.find(key(32)), kept);
}

TEST_F(StreamRecords, AContextThatLivesOnGetsItsRecordsBack) {
  Stream* const first = add(key(16), one_);
  Stream* const second = add(key(32), one_);
  Stream* const taken = streams_.take_out(ContextId{one_});
  Stream* const replaced = add(key(16), one_);
  EXPECT_EQ(streams_.put_back(taken, [](Stream&) {}), first) << "a launch needed another one";
  EXPECT_EQ(first->next, nullptr);
  EXPECT_EQ(streams_.find(key(16)), replaced);
  EXPECT_EQ(streams_.find(key(32)), second);
  EXPECT_EQ(streams_.take_out(key(32))->next, nullptr) << "whoever ends one would end others";
}

// The links of a record belong to the jobs of its client.
TEST_F(StreamRecords, ARecordStaysWithItsClient) {
  Stream* const first = add(key(16), one_, 0);
  end(streams_.take_out(key(16)));
  Stream* const second = add(key(16), other_, 1);
  EXPECT_NE(second, first);
  EXPECT_EQ(second->client, &some<Client>(1));
  EXPECT_EQ(add(key(32), one_, 0), first);
}

// Prevents: a server with a thread for each request grows with the number of its requests. Seen to
// fail, with a record for each thread, without of_ended_thread().
TEST_F(StreamRecords, RecordsOfEndedThreadsAreReused) {
  std::set<Stream*> records;
  for (int i = 0; i < 2000; ++i) {
    std::thread([&] {
      records.insert(of_this_thread(one_));
      records.insert(of_this_thread(other_));
    }).join();
  }
  EXPECT_LT(records.size(), 100U);
}

TEST_F(StreamRecords, ALivingThreadKeepsItsRecord) {
  constexpr int kThreads = 50;
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::set<Stream*> kept;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      std::unique_lock lock(mutex);
      kept.insert(of_this_thread(one_));
      changed.notify_all();
      changed.wait(lock, [&] { return over; });
      EXPECT_EQ(kept.count(of_this_thread(one_)), 1U);
    });
  }
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return kept.size() == kThreads; });
  }
  std::set<Stream*> others;
  for (int i = 0; i < 500; ++i) {
    std::thread([&] { others.insert(of_this_thread(one_)); }).join();
  }
  for (Stream* stream : others) EXPECT_EQ(kept.count(stream), 0U);
  EXPECT_LT(others.size(), 2U * kThreads) << "it looks at two records for each new one";
  {
    const std::lock_guard lock(mutex);
    over = true;
  }
  changed.notify_all();
  for (std::thread& thread : threads) thread.join();
}

TEST(StreamList, AStreamIsInOneListAtMost) {
  StreamList busy;
  StreamList ended;
  std::array<Stream, 3> streams;
  for (Stream& stream : streams) busy.add(stream);
  ended.add(streams[1]);
  std::vector<Stream*> seen;
  busy.for_each([&](Stream& stream) { seen.push_back(&stream); });
  EXPECT_EQ(seen, (std::vector<Stream*>{&streams[0], &streams[2]}));
  busy.for_each([&](Stream& stream) { ended.add(stream); });
  EXPECT_TRUE(busy.empty());
  StreamList::remove(streams[0]);
  StreamList::remove(streams[0]);
  EXPECT_FALSE(ended.has(streams[0]));
  EXPECT_TRUE(ended.has(streams[2]));
  ended.clear();
  EXPECT_TRUE(ended.empty());
  EXPECT_FALSE(ended.has(streams[1]));
}

}  // namespace
}  // namespace sluice::intercept::test
