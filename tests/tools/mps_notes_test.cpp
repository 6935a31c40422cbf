// What status says about MPS. Prevents: a program that time-slices against the session's MPS
// programs, or has the wrong width, and nobody sees it.
#include <gtest/gtest.h>

#include <initializer_list>

#include "tools/status/format.hpp"

namespace sluice::tools {
namespace {

using Mode = shm::MpsWord::Mode;

shm::ClientSnapshot client(std::uint32_t pid, int priority, shm::MpsWord mps) {
  shm::ClientSnapshot client;
  client.slot = static_cast<int>(pid);
  client.pid = pid;
  client.priority = priority;
  client.state = shm::SlotState::kLive;
  client.mps = mps;
  return client;
}

/// What is said of the first one.
std::string note(std::initializer_list<shm::ClientSnapshot> clients) {
  shm::Snapshot snapshot;
  snapshot.clients = clients;
  return mps_note(snapshot, snapshot.clients.front());
}

constexpr shm::MpsWord kAlone{Mode::kNone, 0, 0, 0};
constexpr shm::MpsWord kWide{Mode::kSession, 1, 0, 132};
constexpr shm::MpsWord kHalf{Mode::kSession, 1, 50, 66};

TEST(MpsNotes, AProgramAsEverSaysNothing) {
  EXPECT_EQ(note({client(1, 0, kAlone)}), "");
  EXPECT_EQ(note({client(1, 0, kAlone), client(2, 1, kAlone)}), "");
  EXPECT_EQ(note({client(1, 0, {}), client(2, 1, kWide)}), "") << "it does not say what it is";
}

TEST(MpsNotes, AProgramOfTheSessionsDaemonSaysHowWideItIs) {
  EXPECT_EQ(note({client(1, 1, kWide)}), "under the session's MPS daemon, all 132 SMs");
  EXPECT_EQ(note({client(1, 0, kHalf), client(2, 1, kWide)}),
            "under the session's MPS daemon, 66 SMs (50 %)");
  EXPECT_EQ(note({client(1, 1, {Mode::kSession, 1, 100, 0})}),
            "under the session's MPS daemon, all SMs");
}

TEST(MpsNotes, AProgramOutsideIsNamed) {
  EXPECT_EQ(note({client(1, 0, kAlone), client(2, 1, kWide)}),
            "^ outside of the session's MPS daemon: time-sliced against its programs; start it "
            "with --mps");
  EXPECT_EQ(note({client(1, 0, {Mode::kOther, 0, 0, 132}), client(2, 1, kWide)}),
            "^ under another MPS daemon: takes turns with the session's MPS programs");
  EXPECT_EQ(note({client(1, 0, {Mode::kOther, 0, 0, 132}), client(2, 1, kAlone)}),
            "under an MPS daemon that is not the session's, all 132 SMs");
  shm::ClientSnapshot elsewhere = client(2, 1, kWide);
  elsewhere.device = 1;
  EXPECT_EQ(note({client(1, 0, kAlone), elsewhere}), "");
  shm::ClientSnapshot dead = client(2, 1, kWide);
  dead.state = shm::SlotState::kDead;
  EXPECT_EQ(note({client(1, 0, kAlone), dead}), "");
}

TEST(MpsNotes, AProgramOfAKilledDaemonIsNamed) {
  const shm::MpsWord second{Mode::kSession, 2, 0, 132};
  EXPECT_EQ(note({client(1, 1, kWide), client(2, 0, second)}).find("^ under an MPS daemon of"), 0U);
  EXPECT_EQ(note({client(2, 1, second), client(1, 0, kWide)}),
            "under the session's MPS daemon, all 132 SMs");
}

TEST(MpsNotes, SayWhenTheOtherWidthWouldBeBetterNow) {
  shm::ClientSnapshot busy = client(2, 1, kWide);
  busy.active = true;
  busy.active_ns = 61'000'000'000;
  EXPECT_EQ(note({client(1, 0, kWide), busy}),
            "under the session's MPS daemon, all 132 SMs; pid 2 above it is never idle: "
            "--sms 50% would delay that less");
  EXPECT_EQ(note({client(1, 0, kHalf), busy}), "under the session's MPS daemon, 66 SMs (50 %)");
  EXPECT_EQ(note({client(1, 0, kHalf)}),
            "under the session's MPS daemon, 66 SMs (50 %); nobody is above it now: with --sms all "
            "it would be faster");
  EXPECT_EQ(note({client(1, 1, kWide), busy}), "under the session's MPS daemon, all 132 SMs");
}

TEST(MpsNotes, TheWordKeepsWhatItIsGiven) {
  for (const shm::MpsWord& word :
       {kAlone, kWide, kHalf, shm::MpsWord{Mode::kOther, 255, 100, shm::MpsWord::kMostSms}}) {
    EXPECT_EQ(shm::MpsWord::unpack(word.pack()), word);
  }
  EXPECT_EQ(shm::MpsWord::unpack(0), shm::MpsWord{}) << "an older client says nothing";
  EXPECT_EQ(shm::MpsWord::unpack(~0U).mode, Mode::kUnknown) << "a later one says more";
}

}  // namespace
}  // namespace sluice::tools
