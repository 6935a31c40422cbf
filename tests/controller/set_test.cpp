// The requests of `sluice set`: another priority or policy for a running client.
#include <signal.h>

#include "shm/gates.hpp"
#include "shm/give.hpp"
#include "shm/policy.hpp"
#include "shm/target.hpp"
#include "tests/support/change_request.hpp"
#include "tests/support/controller.hpp"
#include "tests/support/fake_client.hpp"
#include "tests/support/look.hpp"
#include "tests/support/requests.hpp"

namespace sluice::test {
namespace {

using shm::ReplyStatus;

class Set : public RunningControllerTest {
 protected:
  static shm::Request change_of(const FakeClient& client) {
    return test::change_of({client.slot(), client.generation()}, client.board_id());
  }
  [[nodiscard]] shm::Reply ask(const shm::Request& request) const {
    const base::Fd connection = connect_to(session_);
    return ask_controller(connection.get(), request);
  }
  [[nodiscard]] ReplyStatus set_priority(const FakeClient& client, unsigned priority) const {
    shm::Request request = change_of(client);
    request.priority = priority;
    return ask(request).status;
  }
};

// Prevents: after a change of priority a gate is held by a client that is no longer higher, or open
// to a client that now is; outranked clients that do not pace.
TEST_F(Set, APriorityMovesTheGatesOfAllAtOnce) {
  const Look look(session_);
  FakeClient low(session_, 0);
  FakeClient middle(session_, 5);
  FakeClient elsewhere(session_, 0, 2);
  middle.order("begin");
  ASSERT_EQ(look.gate(low.slot()), shm::bit(middle.slot()));
  EXPECT_EQ(look.slot(low.slot()).outranked.load(), 1U);

  // The change is complete when the reply arrives, not a heartbeat later.
  ASSERT_EQ(set_priority(low, 9), ReplyStatus::kOk);
  EXPECT_EQ(look.gate(low.slot()), 0U) << "held by a lower priority";
  EXPECT_EQ(look.slot(low.slot()).outranked.load(), 0U);
  EXPECT_EQ(look.slot(middle.slot()).outranked.load(), 1U);
  low.order("begin");
  EXPECT_EQ(look.gate(middle.slot()), shm::bit(low.slot()));

  ASSERT_EQ(set_priority(low, 5), ReplyStatus::kOk);
  EXPECT_EQ(look.gate(middle.slot()), 0U) << "held by the same priority";
  EXPECT_EQ(look.slot(middle.slot()).outranked.load(), 0U);
  ASSERT_EQ(set_priority(middle, 255), ReplyStatus::kOk);
  EXPECT_EQ(look.gate(low.slot()), shm::bit(middle.slot()))
      << "its running job now has the higher priority";
  EXPECT_EQ(look.slot(low.slot()).outranked.load(), 1U);
  EXPECT_EQ(look.slot(elsewhere.slot()).outranked.load(), 0U);
  middle.order("end");
  EXPECT_EQ(look.gate(low.slot()), 0U);
  low.order("end");
}

// The client itself puts the policy in force, because only the client knows when that is safe.
TEST_F(Set, APolicyIsAskedForOnTheBoard) {
  const Look look(session_);
  const FakeClient client(session_, 3);
  const shm::Slot& slot = look.slot(client.slot());
  const std::uint64_t in_force = slot.policy.load();
  shm::Request request = change_of(client);
  request.policy = shm::Policy{shm::PolicyKind::kSync, shm::Spacing::launches(7)}.pack();
  EXPECT_EQ(ask(request).status, ReplyStatus::kOk);
  EXPECT_EQ(slot.requested_policy.load(), request.policy);
  EXPECT_EQ(slot.policy.load(), in_force);
  EXPECT_EQ(shm::SlotInfo::unpack(slot.info.load()).priority, 3) << "not asked to change";
  EXPECT_EQ(set_priority(client, 4), ReplyStatus::kOk);
  EXPECT_EQ(slot.requested_policy.load(), request.policy) << "not asked to change";
}

// Prevents: a change of the policy that takes the target away, and a log without the change.
TEST_F(Set, ATargetIsAskedForOnTheBoard) {
  const Look look(session_);
  const FakeClient client(session_, 3);
  const shm::Slot& slot = look.slot(client.slot());
  shm::Request request = change_of(client);
  request.target = shm::parse_target("p99=1.2x")->pack();
  EXPECT_EQ(ask(request).status, ReplyStatus::kOk);
  EXPECT_EQ(slot.requested_target.load(), request.target);
  EXPECT_EQ(set_priority(client, 4), ReplyStatus::kOk);
  EXPECT_EQ(slot.requested_target.load(), request.target) << "not asked to change";
  EXPECT_TRUE(eventually([&] {
    return log().find(", target none -> p99=1.2x") != std::string::npos;
  })) << log();
  request.target = 0;
  EXPECT_EQ(ask(request).status, ReplyStatus::kOk);
  EXPECT_EQ(slot.requested_target.load(), 0U);
}

TEST_F(Set, ATimeSliceIsAskedForOnTheBoard) {
  const Look look(session_);
  const FakeClient client(session_, 3);
  const shm::Slot& slot = look.slot(client.slot());
  shm::Request request = change_of(client);
  request.slice = 250;
  EXPECT_EQ(ask(request).status, ReplyStatus::kOk);
  EXPECT_EQ(slot.requested_slice.load(), 250U);
  request.slice = shm::kKeepSlice;
  EXPECT_EQ(ask(request).status, ReplyStatus::kOk);
  EXPECT_EQ(slot.requested_slice.load(), 250U) << "not asked to change";
  EXPECT_TRUE(eventually([&] { return log().find(", slice auto -> 250us") != std::string::npos; }))
      << log();
  request.slice = 2'001;
  const shm::Reply refused = ask(request);
  EXPECT_EQ(refused.status, ReplyStatus::kNotAllowed);
  EXPECT_STREQ(
      refused.text.data(),
      "slice 2001us: others would wait for it; at most 2ms (max_slice in the site policy)");
  EXPECT_EQ(slot.requested_slice.load(), 250U);
}

TEST_F(Set, AWeightIsAskedForOnTheBoard) {
  const Look look(session_);
  const FakeClient client(session_, 3);
  const shm::Slot& slot = look.slot(client.slot());
  shm::Request request = change_of(client);
  request.weight = 3;
  EXPECT_EQ(ask(request).status, ReplyStatus::kOk);
  EXPECT_EQ(slot.requested_weight.load(), 3U);
  EXPECT_EQ(set_priority(client, 4), ReplyStatus::kOk);
  EXPECT_EQ(slot.requested_weight.load(), 3U) << "not asked to change";
  EXPECT_TRUE(eventually([&] { return log().find(", weight none -> 3") != std::string::npos; }))
      << log();
}

// Prevents: what a program gives is not that of its user, or changes with its priority.
TEST_F(Set, WhatItGivesIsOnTheBoard) {
  const Look look(session_);
  const FakeClient client(session_, 3);
  const shm::Slot& slot = look.slot(client.slot());
  shm::Request request = change_of(client);
  request.give = shm::say_give(0);
  EXPECT_EQ(ask(request).status, ReplyStatus::kOk);
  EXPECT_EQ(slot.requested_give.load(), shm::pack_give(0));
  EXPECT_EQ(set_priority(client, 4), ReplyStatus::kOk);
  EXPECT_EQ(slot.requested_give.load(), shm::pack_give(0)) << "not asked to change";
  EXPECT_TRUE(eventually([&] { return log().find(", give 5% -> 0") != std::string::npos; }))
      << log();
}

// Prevents: a change of the priority that takes the limit away, and a log without the change.
TEST_F(Set, AMemoryLimitIsOnTheBoard) {
  const Look look(session_);
  const FakeClient client(session_, 3);
  const shm::Slot& slot = look.slot(client.slot());
  shm::Request request = change_of(client);
  request.memory = std::uint64_t{20} << 30U;
  EXPECT_EQ(ask(request).status, ReplyStatus::kOk);
  EXPECT_EQ(slot.memory_limit.load(), request.memory);
  EXPECT_EQ(set_priority(client, 4), ReplyStatus::kOk);
  EXPECT_EQ(slot.memory_limit.load(), request.memory) << "not asked to change";
  EXPECT_TRUE(eventually([&] { return log().find(", memory none -> 20GiB") != std::string::npos; }))
      << log();
  request.memory = 0;
  EXPECT_EQ(ask(request).status, ReplyStatus::kOk);
  EXPECT_EQ(slot.memory_limit.load(), 0U);
}

// Prevents: a change for a client that has ended, or for an old board, reaches the slot's current
// client; invalid values on the board.
TEST_F(Set, RefusesWhatItCannotDo) {
  const Look look(session_);
  FakeClient client(session_, 3);
  const auto info = look.slot(client.slot()).info.load();
  const auto policy = look.slot(client.slot()).requested_policy.load();
  const auto refused = [&](ReplyStatus status, auto change) {
    shm::Request request = change_of(client);
    request.priority = 9;
    request.policy = shm::Policy{shm::PolicyKind::kGate}.pack();
    change(request);
    const shm::Reply reply = ask(request);
    EXPECT_EQ(reply.status, status) << reply.text.data();
    EXPECT_STRNE(reply.text.data(), "");
  };
  using R = shm::Request;
  refused(ReplyStatus::kOtherBoard, [](R& r) { ++r.generation; });
  refused(ReplyStatus::kOtherBoard, [](R& r) { ++r.board_id; });
  refused(ReplyStatus::kOtherBoard, [](R& r) { r.slot = 40; });
  refused(ReplyStatus::kBadRequest, [](R& r) { r.slot = -1; });
  refused(ReplyStatus::kBadRequest, [](R& r) { r.slot = shm::kSlots; });
  refused(ReplyStatus::kBadRequest, [](R& r) { r.priority = 256; });
  refused(ReplyStatus::kBadRequest, [](R& r) { r.policy = 0x99; });
  refused(ReplyStatus::kBadRequest, [](R& r) { r.target = 50; });
  refused(ReplyStatus::kBadRequest, [](R& r) { r.slice = 19; });
  refused(ReplyStatus::kBadRequest, [](R& r) { r.slice = 100'001; });
  refused(ReplyStatus::kBadRequest, [](R& r) { r.memory = 50; });
  refused(ReplyStatus::kBadRequest, [](R& r) { r.weight = 1001; });
  refused(ReplyStatus::kBadRequest, [](R& r) { r.give = shm::say_give(501); });
  refused(ReplyStatus::kBadRequest, [](R& r) { r.policy = std::uint64_t{2} << 32U; });
  EXPECT_EQ(look.slot(client.slot()).info.load(), info);
  EXPECT_EQ(look.slot(client.slot()).requested_policy.load(), policy);
  client.order("leave");
  refused(ReplyStatus::kOtherBoard, [](R&) {});
}

}  // namespace
}  // namespace sluice::test
