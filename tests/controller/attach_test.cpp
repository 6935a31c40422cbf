// Which clients get slots, and which do not.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "shm/gates.hpp"
#include "shm/give.hpp"
#include "shm/policy.hpp"
#include "shm/session.hpp"
#include "shm/slice.hpp"
#include "shm/target.hpp"
#include "tests/support/controller.hpp"
#include "tests/support/fake_client.hpp"
#include "tests/support/look.hpp"
#include "tests/support/requests.hpp"

namespace sluice::test {
namespace {

using shm::ReplyStatus;
using shm::SlotState;

class Attach : public RunningControllerTest {};

// Prevents: a client goes live in a slot whose fields are not filled yet.
TEST_F(Attach, FillsTheSlotBeforeItAnswers) {
  const Look look(session_);
  const base::Fd connection = connect_to(session_);
  shm::Request request = good_request(7, 3);
  request.policy = shm::Policy{shm::PolicyKind::kSync, shm::Spacing::launches(5)}.pack();
  std::strcpy(request.device_name.data(), "Some GPU");
  std::strcpy(request.name.data(), "a\nname");
  request.target = shm::parse_target("p99=50ms")->pack();
  request.slice = 250;
  request.weight = 3;
  request.give = shm::say_give(25);
  request.memory = std::uint64_t{20} << 30U;
  std::strcpy(request.label.data(), "team=vision,job=4711");
  const shm::Reply reply = ask_controller(connection.get(), request);
  ASSERT_EQ(reply.status, ReplyStatus::kOk);
  EXPECT_EQ(reply.slot, 0);
  EXPECT_EQ(reply.board_id, look.board().board_id.load());
  const shm::Slot& slot = look.slot(reply.slot);
  const auto info = shm::SlotInfo::unpack(slot.info.load());
  EXPECT_EQ(info.state, SlotState::kReserved);
  EXPECT_EQ(info.priority, 7);
  EXPECT_EQ(info.generation, reply.generation);
  EXPECT_EQ(look.board().used.load(), 1U);
  EXPECT_EQ(slot.pid.load(), static_cast<std::uint32_t>(getpid()));
  EXPECT_EQ(slot.policy.load(), request.policy);
  EXPECT_EQ(slot.requested_policy.load(), request.policy);
  EXPECT_NE(slot.attached_ns.load(), 0U);
  EXPECT_STREQ(slot.name.data(), "a?name");
  EXPECT_EQ(slot.requested_target.load(), request.target);
  EXPECT_EQ(slot.requested_slice.load(), 250U);
  EXPECT_EQ(slot.requested_weight.load(), 3U);
  EXPECT_EQ(slot.requested_give.load(), shm::pack_give(25));
  EXPECT_EQ(slot.memory_limit.load(), request.memory);
  EXPECT_EQ(slot.memory_ceiling.load(), 0U);
  EXPECT_EQ(slot.target.load(), 0U) << "the client itself puts it in force";
  EXPECT_STREQ(slot.label.data(), "team=vision,job=4711");
  EXPECT_STREQ(look.board().devices[info.device].name.data(), "Some GPU");
  EXPECT_EQ(look.board().devices[info.device].uuid, request.device_uuid);
  // The full command line follows later, from the command reader.
  EXPECT_TRUE(eventually([&] {
    return std::strncmp(slot.command.data(), "sluice_controller_test", 22) == 0;
  })) << slot.command.data();
  const shm::Reply nameless = ask_controller(connection.get(), good_request());
  EXPECT_STREQ(look.slot(nameless.slot).name.data(), "sluice_controll")
      << "the name of the process";
  EXPECT_STREQ(look.slot(nameless.slot).label.data(), "");
  EXPECT_EQ(look.slot(nameless.slot).requested_target.load(), 0U);
  EXPECT_EQ(look.slot(nameless.slot).memory_limit.load(), 0U);
  EXPECT_EQ(look.slot(nameless.slot).requested_give.load(), 0U) << "the default";
}

// Prevents: devices identified by their CUDA_VISIBLE_DEVICES ordinals; one slot for two devices.
TEST_F(Attach, OneSlotPerDeviceOfAProcess) {
  const Look look(session_);
  const base::Fd connection = connect_to(session_);
  const shm::Reply first = ask_controller(connection.get(), good_request(0, 1));
  const shm::Reply second = ask_controller(connection.get(), good_request(0, 2));
  const shm::Reply third = ask_controller(connection.get(), good_request(0, 1));
  const auto device_of = [&](const shm::Reply& reply) {
    return shm::SlotInfo::unpack(look.slot(reply.slot).info.load()).device;
  };
  EXPECT_NE(first.slot, second.slot);
  EXPECT_NE(device_of(first), device_of(second));
  EXPECT_EQ(device_of(first), device_of(third));
}

// Prevents: clients that pace without a client of higher priority, or do not pace below one.
TEST_F(Attach, OutrankedFollowsWhoLives) {
  const Look look(session_);
  FakeClient low_client(session_, 1);  // whose watcher sets the word back
  const int low = low_client.slot();
  EXPECT_EQ(look.slot(low).outranked.load(), 0U);
  const base::Fd equal = connect_to(session_);
  ask_controller(equal.get(), good_request(1, 1));
  const base::Fd elsewhere = connect_to(session_);
  ask_controller(elsewhere.get(), good_request(9, 2));
  EXPECT_EQ(look.slot(low).outranked.load(), 0U)
      << "the others have the same priority or another device";
  {
    const base::Fd above = connect_to(session_);
    const int high = ask_controller(above.get(), good_request(2, 1)).slot;
    EXPECT_EQ(look.slot(low).outranked.load(), 1U);
    EXPECT_EQ(look.slot(high).outranked.load(), 0U);
  }
  EXPECT_TRUE(eventually([&] { return look.slot(low).outranked.load() == 0; }));
  low_client.order("leave");
}

// Prevents: a full session refuses a client without a reason, or gives a slot out twice.
TEST_F(Attach, The64thClientIsRefusedAndAFreedSlotGivenOutAgain) {
  const Look look(session_);
  std::vector<base::Fd> connections;
  std::uint64_t slots = 0;
  for (int i = 0; i < shm::kSlots; ++i) {
    connections.push_back(connect_to(session_));
    const shm::Reply reply = ask_controller(connections.back().get(), good_request(1));
    ASSERT_EQ(reply.status, ReplyStatus::kOk) << i;
    slots |= shm::bit(reply.slot);
  }
  EXPECT_EQ(slots, ~shm::bit(63));
  const FakeClient late(session_, 1);
  EXPECT_FALSE(late.attached());
  EXPECT_EQ(late.greeting(),
            "refused 1 all 63 slots are taken; end a client, or use another session");

  const std::uint32_t generation = shm::SlotInfo::unpack(look.slot(17).info.load()).generation;
  connections[17] = base::Fd();
  ASSERT_TRUE(eventually([&] { return look.state(17) == SlotState::kFree; }));
  const base::Fd again = connect_to(session_);
  const shm::Reply reply = ask_controller(again.get(), good_request(1));
  EXPECT_EQ(reply.slot, 17);
  EXPECT_GT(reply.generation, generation);
}

// Prevents: best-effort programs take all slots, and the critical one that comes last runs without
// protection.
TEST_F(Attach, BestEffortLeavesSlotsForWhoeverMayHoldIt) {
  const Look look(session_);
  std::vector<base::Fd> connections;
  const auto attach = [&](int priority) {
    connections.push_back(connect_to(session_));
    return ask_controller(connections.back().get(), good_request(priority));
  };
  for (int i = 0; i < shm::kSlots - 16; ++i) ASSERT_EQ(attach(0).status, ReplyStatus::kOk) << i;
  const shm::Reply refused = attach(0);
  EXPECT_EQ(refused.status, ReplyStatus::kSessionFull);
  EXPECT_STREQ(
      refused.text.data(),
      "no slot is left for priority 0: the last 16 are kept for higher ones; end a client");
  for (int i = 0; i < 16; ++i) ASSERT_EQ(attach(1 + i).status, ReplyStatus::kOk) << i;
  EXPECT_EQ(attach(255).status, ReplyStatus::kSessionFull);
}

// Prevents: best effort makes a critical job wait for 100 ms, because it says so.
TEST_F(Attach, ALongSliceIsLoweredToAuto) {
  const Look look(session_);
  const base::Fd connection = connect_to(session_);
  shm::Request request = good_request();
  request.slice = 100'000;
  const shm::Reply reply = ask_controller(connection.get(), request);
  ASSERT_EQ(reply.status, ReplyStatus::kOk);
  EXPECT_STREQ(
      reply.text.data(),
      "slice 100ms: others would wait for it; runs with auto (max_slice in the site policy)");
  EXPECT_EQ(look.slot(reply.slot).requested_slice.load(), shm::kSliceAuto);
  for (const std::uint32_t slice : {0U, 2'000U, 0xffff'ffffU}) {
    request.slice = slice;
    const base::Fd other = connect_to(session_);
    const shm::Reply answer = ask_controller(other.get(), request);
    EXPECT_STREQ(answer.text.data(), "");
    EXPECT_EQ(look.slot(answer.slot).requested_slice.load(), slice);
  }
}

// Prevents: the 33rd device shares the gates of another device.
TEST_F(Attach, The33rdDeviceIsRefusedAndAnUnusedOneReplaced) {
  std::vector<base::Fd> connections;
  for (int device = 0; device < shm::kMaxDevices; ++device) {
    connections.push_back(connect_to(session_));
    ASSERT_EQ(ask_controller(connections.back().get(), good_request(0, device)).status,
              ReplyStatus::kOk);
  }
  const base::Fd late = connect_to(session_);
  const shm::Reply refused = ask_controller(late.get(), good_request(0, 100));
  EXPECT_EQ(refused.status, ReplyStatus::kSessionFull);
  EXPECT_STRNE(refused.text.data(), "");
  connections[5] = base::Fd();
  EXPECT_TRUE(eventually(
      [&] { return ask_controller(late.get(), good_request(0, 100)).status == ReplyStatus::kOk; }));
}

// Prevents: a client inherits the counters of the slot's former client; a job counter repeats, for
// which max_hold may have opened a gate.
TEST_F(Attach, ANewClientStartsFromCleanCounters) {
  shm::BoardMapping mapping = shm::BoardMapping::attach(session_);
  {
    FakeClient client(session_, 1);
    client.order("begin");
    client.order("end");
    client.order("leave");
  }
  ASSERT_TRUE(eventually([&] { return mapping.board().used.load() == 0; }));
  shm::Slot& slot = mapping.board().slots[0];
  const std::vector<shm::Word*> words{&slot.closed_since_ns,
                                      &slot.closed_ns,
                                      &slot.slack_until_ns,
                                      &slot.job_since_ns,
                                      &slot.max_hold_opened,
                                      &slot.early_hold_until_ns,
                                      &slot.watcher_beat_ns,
                                      &slot.longest_launch_ns,
                                      &slot.ungated_graph_ns,
                                      &slot.predictions,
                                      &slot.prediction_hits,
                                      &slot.prediction_cost_ns,
                                      &slot.waived[3],
                                      &slot.unknown_launches,
                                      &slot.entries[0][shm::Count::kGated],
                                      &slot.open_job,
                                      &slot.target,
                                      &slot.target_ns,
                                      &slot.alone_ns,
                                      &slot.target_jobs,
                                      &slot.target_kept,
                                      &slot.open_ns,
                                      &slot.target_total_ns,
                                      &slot.gpu_ns,
                                      &slot.held_by_ns[3],
                                      &slot.requested_target,
                                      &slot.busy_ns,
                                      &slot.steps.ended,
                                      &slot.steps.open_ns,
                                      &slot.items,
                                      &slot.items_ns,
                                      &slot.items_waited_ns,
                                      &mapping.board().slots[7].held_by_ns[0]};
  const std::vector<shm::HalfWord*> half_words{&slot.waiters,
                                               &slot.announced,
                                               &slot.skipped_waits,
                                               &slot.waited_for,
                                               &slot.stalled_streams,
                                               &slot.unhooked_lookups,
                                               &slot.target_state,
                                               &slot.slice_us,
                                               &slot.slice_state,
                                               &slot.gpu_share,
                                               &slot.requested_slice,
                                               &slot.close_state,
                                               &slot.close_low_us,
                                               &slot.close_high_us,
                                               &slot.steps.state,
                                               &slot.steps.cost,
                                               &slot.steps.windows,
                                               &slot.steps.window_us,
                                               &slot.steps.kinds[3].p99_us,
                                               &slot.requested_give,
                                               &slot.gives_known,
                                               &slot.gives_closing,
                                               &slot.gives_windows,
                                               &slot.gives_open};
  for (shm::Word* word : words) word->store(5);
  for (shm::HalfWord* word : half_words) word->store(5);
  slot.slack_ns.store(5);
  slot.unhooked_name.front() = 'x';
  slot.job_times.add(9);
  const base::Fd connection = connect_to(session_);
  ASSERT_EQ(ask_controller(connection.get(), good_request()).slot, 0);
  for (std::size_t i = 0; i < words.size(); ++i) EXPECT_EQ(words[i]->load(), 0U) << i;
  for (std::size_t i = 0; i < half_words.size(); ++i) EXPECT_EQ(half_words[i]->load(), 0U) << i;
  EXPECT_EQ(slot.slack_ns.load(), shm::kUnlimitedSlack);
  EXPECT_STREQ(slot.unhooked_name.data(), "");
  EXPECT_EQ(slot.job_times.ended.load(), 0U);
  EXPECT_TRUE(slot.job_times.recent().ns.empty());
  EXPECT_EQ(slot.job.load(), 2U);
}

// Prevents: a process attaches again to a slot of another process, of another board, or to its own
// slot of an earlier generation.
TEST_F(Attach, AttachesAgainOnlyToItsOwnSlot) {
  const base::Fd connection = connect_to(session_);
  shm::Request request = good_request();
  const shm::Reply given = ask_controller(connection.get(), request);
  request.slot = given.slot;
  request.generation = given.generation;
  request.board_id = given.board_id;
  const base::Fd again = connect_to(session_);
  const shm::Reply same = ask_controller(again.get(), request);
  EXPECT_EQ(same.status, ReplyStatus::kOk);
  EXPECT_EQ(same.slot, given.slot);
  EXPECT_EQ(same.generation, given.generation);

  const FakeClient other(session_, 0);
  const auto status_of = [&](auto change) {
    shm::Request wrong = request;
    change(wrong);
    return ask_controller(again.get(), wrong).status;
  };
  EXPECT_EQ(status_of([](auto& r) { r.board_id += 1; }), ReplyStatus::kOtherBoard);
  EXPECT_EQ(status_of([](auto& r) { r.generation += 1; }), ReplyStatus::kOtherBoard);
  EXPECT_EQ(status_of([](auto& r) { r.slot = 40; }), ReplyStatus::kOtherBoard);
  EXPECT_EQ(status_of([&](auto& r) {
              r.slot = other.slot();
              r.generation = other.generation();
            }),
            ReplyStatus::kOtherBoard)
      << "the slot of another process";
}

// Prevents: a client has attached again, and its slot is freed when its old connection closes.
TEST_F(Attach, TheOldConnectionMayCloseAfterAttachingAgain) {
  const Look look(session_);
  base::Fd connection = connect_to(session_);
  shm::Request request = good_request();
  const shm::Reply given = ask_controller(connection.get(), request);
  request.slot = given.slot;
  request.generation = given.generation;
  request.board_id = given.board_id;
  const base::Fd again = connect_to(session_);
  ASSERT_EQ(ask_controller(again.get(), request).status, ReplyStatus::kOk);
  connection = base::Fd();
  ask_controller(connect_to(session_).get(), good_request());  // a round trip after the close
  const std::uint64_t beat = look.board().heartbeat_ns.load();
  ASSERT_TRUE(eventually([&] { return look.board().heartbeat_ns.load() > beat + 1; }));
  EXPECT_EQ(look.state(given.slot), SlotState::kReserved);
}

// Prevents: other users connect to the socket.
TEST_F(Attach, SocketAndFolderAreTheOwnersOnly) {
  struct stat found {};
  ASSERT_EQ(stat(shm::socket_path(session_).c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
  ASSERT_EQ(stat(base::runtime_dir().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0700U);
}

// Prevents: a process of another user gets a slot after a user opened the folder and the socket to
// others.
TEST_F(Attach, AnotherUserIsRefused) {
  constexpr uid_t kNobody = 65534;
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const std::string path = shm::socket_path(session_);
  chmod(path.c_str(), 0666);
  const base::Fd opened(open(path.c_str(), O_PATH | O_CLOEXEC));
  ASSERT_EQ(seteuid(kNobody), 0);
  // connect_controller() would refuse first, and the mode of the folder must stay: other tests use
  // it.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ("/proc/self/fd/" + std::to_string(opened.get()))
      .copy(address.sun_path, sizeof(address.sun_path) - 1);
  const base::Fd connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const int connected =
      connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_EQ(connected, 0);
  shm::Reply reply;
  EXPECT_LT(shm::ask(connection.get(), good_request(), reply, 10'000), 0) << "hung up, no reply";
  EXPECT_EQ(Look(session_).board().used.load(), 0U);
  EXPECT_TRUE(eventually([&] { return log().find("of uid 65534") != std::string::npos; }));
}

}  // namespace
}  // namespace sluice::test
