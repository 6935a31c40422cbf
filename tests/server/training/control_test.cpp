// Prevents: a mode that lets inference run before training has left, that takes an order back while
// launches may have been refused, that relaunches a trainer in the middle of a busy period, or that
// waits for a wedged trainer forever.
#include "server/training/control.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace sluice::server::training {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kWedged = 10 * kSecond;
constexpr bool kObeys = true;

Control running(Mode mode) {
  Control control(mode, kWedged);
  EXPECT_EQ(control.job_submitted(), Action::kLaunch);
  return control;
}

class WithoutOrders : public testing::TestWithParam<Mode> {};

TEST_P(WithoutOrders, NeverTouchTheTrainerForARequest) {
  Control control = running(GetParam());
  EXPECT_EQ(control.inference_wants(1, kObeys), Action::kNothing);
  EXPECT_TRUE(control.inference_may_run());
  EXPECT_EQ(control.inference_idle(), Action::kNothing);
  EXPECT_EQ(control.next_ns(), ~std::uint64_t{0});
}

TEST_P(WithoutOrders, LaunchAlsoWhileInferenceIsBusy) {
  Control control(GetParam(), kWedged);
  EXPECT_EQ(control.inference_wants(1, false), Action::kNothing);
  EXPECT_EQ(control.job_submitted(), Action::kLaunch);
}

INSTANTIATE_TEST_SUITE_P(Control, WithoutOrders,
                         testing::Values(Mode::kNormal, Mode::kPark, Mode::kColocateL1,
                                         Mode::kColocateL2),
                         [](const auto& mode) {
                           std::string name(to_string(mode.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Control, TaskSwitchL1WaitsForTheTrainerAndResumesIt) {
  Control control = running(Mode::kTaskSwitchL1);
  EXPECT_EQ(control.inference_wants(1, kObeys), Action::kSleep);
  EXPECT_FALSE(control.inference_may_run());
  EXPECT_EQ(control.trainer_obeyed(), Action::kNothing);
  EXPECT_TRUE(control.inference_may_run());
  EXPECT_EQ(control.inference_idle(), Action::kResume);
  EXPECT_EQ(control.inference_wants(2, kObeys), Action::kSleep) << "each busy period switches";
}

TEST(Control, TaskSwitchL2RestoresTheEpoch) {
  Control control = running(Mode::kTaskSwitchL2);
  EXPECT_EQ(control.inference_wants(1, kObeys), Action::kRestore);
}

TEST(Control, AnOrderIsNotTakenBackBeforeItIsObeyed) {
  Control control = running(Mode::kTaskSwitchL1);
  EXPECT_EQ(control.inference_wants(1, kObeys), Action::kSleep);
  EXPECT_EQ(control.inference_idle(), Action::kNothing) << "the only request was dropped";
  EXPECT_EQ(control.trainer_obeyed(), Action::kResume);
  EXPECT_TRUE(control.inference_may_run());
}

TEST(Control, ANewRequestWaitsForAPendingOrder) {
  Control control = running(Mode::kTaskSwitchL1);
  EXPECT_EQ(control.inference_wants(1, kObeys), Action::kSleep);
  EXPECT_EQ(control.inference_idle(), Action::kNothing);
  EXPECT_EQ(control.inference_wants(2, kObeys), Action::kNothing);
  EXPECT_FALSE(control.inference_may_run());
  EXPECT_EQ(control.trainer_obeyed(), Action::kNothing) << "inference is busy: it sleeps";
  EXPECT_TRUE(control.inference_may_run());
}

TEST(Control, ATrainerThatKnowsNoOrdersIsLeftToTheGate) {
  Control control = running(Mode::kTaskSwitchL1);
  EXPECT_EQ(control.inference_wants(1, false), Action::kNothing);
  EXPECT_TRUE(control.inference_may_run());
}

// Prevents: a trainer that was starting when inference became busy trains on as long as inference
// is never idle, and takes the memory.
TEST(Control, ATrainerThatLearnsOfOrdersTooLateIsStoppedInTheBusyPeriod) {
  Control control = running(Mode::kTaskSwitchL2);
  EXPECT_EQ(control.trainer_knows_orders(1), Action::kNothing) << "inference is idle";
  EXPECT_EQ(control.inference_wants(2, false), Action::kNothing);
  EXPECT_EQ(control.trainer_knows_orders(3), Action::kRestore);
  EXPECT_EQ(control.trainer_knows_orders(4), Action::kNothing) << "one order is enough";
  EXPECT_EQ(control.next_ns(), 3 + kWedged);
  EXPECT_EQ(control.trainer_obeyed(), Action::kNothing);
  EXPECT_EQ(control.trainer_knows_orders(5), Action::kNothing);
  EXPECT_EQ(control.inference_idle(), Action::kResume);
  for (const Mode mode : {Mode::kTaskSwitchL3, Mode::kColocateL1, Mode::kPark}) {
    Control other = running(mode);
    static_cast<void>(other.inference_wants(1, false));
    EXPECT_EQ(other.trainer_knows_orders(2), Action::kNothing) << to_string(mode);
  }
}

TEST(Control, TaskSwitchL3KillsAndLaunchesAgainWhenInferenceIsIdle) {
  Control control = running(Mode::kTaskSwitchL3);
  EXPECT_EQ(control.inference_wants(1, false), Action::kKill);
  EXPECT_FALSE(control.inference_may_run());
  EXPECT_EQ(control.trainer_ended(TrainerEnd::kKilled), Action::kNothing);
  EXPECT_TRUE(control.inference_may_run());
  EXPECT_EQ(control.inference_idle(), Action::kLaunch);
  EXPECT_EQ(control.inference_wants(2, false), Action::kKill);
  EXPECT_EQ(control.inference_idle(), Action::kNothing);
  EXPECT_EQ(control.trainer_ended(TrainerEnd::kKilled), Action::kLaunch);
}

TEST(Control, AJobOfATaskSwitchWaitsForInference) {
  Control control(Mode::kTaskSwitchL1, kWedged);
  EXPECT_EQ(control.inference_wants(1, false), Action::kNothing);
  EXPECT_EQ(control.job_submitted(), Action::kNothing);
  EXPECT_EQ(control.inference_idle(), Action::kLaunch);
}

TEST(Control, AKilledTrainerBeginsAnewAndAFinishedOneDoesNot) {
  Control killed = running(Mode::kColocateL1);
  EXPECT_EQ(killed.trainer_ended(TrainerEnd::kKilled), Action::kLaunch);
  Control finished = running(Mode::kColocateL1);
  EXPECT_EQ(finished.trainer_ended(TrainerEnd::kFinished), Action::kNothing);
  EXPECT_EQ(finished.job_submitted(), Action::kLaunch);
}

TEST(Control, ATrainerThatEndsWhileInferenceWaitsLetsItRun) {
  Control control = running(Mode::kTaskSwitchL1);
  EXPECT_EQ(control.inference_wants(1, kObeys), Action::kSleep);
  EXPECT_EQ(control.trainer_ended(TrainerEnd::kFinished), Action::kNothing);
  EXPECT_TRUE(control.inference_may_run());
  EXPECT_EQ(control.inference_idle(), Action::kNothing);
}

TEST(Control, AWedgedTrainerIsEndedInTimeAndNotLaunchedAgain) {
  Control control = running(Mode::kTaskSwitchL1);
  EXPECT_EQ(control.inference_wants(kSecond, kObeys), Action::kSleep);
  EXPECT_EQ(control.next_ns(), kSecond + kWedged);
  EXPECT_EQ(control.time_passed(kSecond + kWedged - 1), Action::kNothing);
  EXPECT_FALSE(control.inference_may_run());
  EXPECT_EQ(control.time_passed(kSecond + kWedged), Action::kEnd);
  EXPECT_TRUE(control.inference_may_run()) << "inference goes on with the memory it has";
  EXPECT_EQ(control.trainer_ended(TrainerEnd::kKilled), Action::kNothing);
  EXPECT_EQ(control.inference_idle(), Action::kNothing);
  EXPECT_EQ(control.job_submitted(), Action::kLaunch);
}

TEST(Control, AnObeyedOrderIsNoLongerTimed) {
  Control control = running(Mode::kTaskSwitchL1);
  EXPECT_EQ(control.inference_wants(kSecond, kObeys), Action::kSleep);
  EXPECT_EQ(control.trainer_obeyed(), Action::kNothing);
  EXPECT_EQ(control.next_ns(), ~std::uint64_t{0});
  EXPECT_EQ(control.time_passed(1000 * kSecond), Action::kNothing);
}

/// Random events in virtual time, against a trainer that obeys after a random time or never.
/// Inference must never run while an order is on its way, and never wait for longer than wedged_ns;
/// a trainer must never sleep while inference is idle.
TEST(Control, RandomRunsNeverBlockInferenceAndNeverLeaveTheTrainerAsleep) {
  std::mt19937_64 random(7);
  for (int run = 0; run < 2000; ++run) {
    const Mode mode = kModes[random() % kModes.size()];
    Control control(mode, kWedged);
    bool busy = false;
    bool process = false;
    bool asleep = false;
    std::uint64_t now = 1;
    std::uint64_t waits_since = 0;
    int jobs = 0;
    const auto act = [&](auto&& self, Action action) -> void {
      switch (action) {
        case Action::kLaunch:
          EXPECT_FALSE(process);
          EXPECT_TRUE(!busy || !is_task_switch(mode));
          process = true;
          break;
        case Action::kResume:
          EXPECT_TRUE(asleep);
          EXPECT_FALSE(busy);
          asleep = false;
          break;
        case Action::kEnd:
          EXPECT_TRUE(process);
          process = asleep = false;
          jobs = 0;
          self(self, control.trainer_ended(TrainerEnd::kKilled));
          break;
        case Action::kKill:
          EXPECT_EQ(mode, Mode::kTaskSwitchL3);
          EXPECT_TRUE(process);
          break;
        default:
          break;
      }
    };
    for (int step = 0; step < 60; ++step) {
      now += random() % (4 * kSecond);
      if (now >= control.next_ns()) act(act, control.time_passed(now));
      switch (random() % 5) {
        case 0:
          if (!busy) {
            busy = true;
            act(act, control.inference_wants(now, random() % 4 != 0));
          }
          break;
        case 1:
          if (busy) {
            busy = false;
            act(act, control.inference_idle());
          }
          break;
        case 2:
          if (control.stopping() && mode == Mode::kTaskSwitchL3) {
            process = false;
            act(act, control.trainer_ended(TrainerEnd::kKilled));
          } else if (control.stopping()) {
            asleep = true;
            act(act, control.trainer_obeyed());
          }
          break;
        case 3:
          if (jobs == 0) {
            jobs = 1;
            act(act, control.job_submitted());
          }
          break;
        default:
          if (process && random() % 3 == 0) {
            process = asleep = false;
            const bool killed = random() % 2 == 0;
            if (!killed) jobs = 0;
            act(act, control.trainer_ended(killed ? TrainerEnd::kKilled : TrainerEnd::kFinished));
          }
      }
      EXPECT_EQ(control.inference_may_run(), !control.stopping());
      EXPECT_TRUE(busy || !asleep);
      EXPECT_TRUE(!asleep || (is_task_switch(mode) && mode != Mode::kTaskSwitchL3));
      EXPECT_TRUE(process || jobs == 0 || busy);
      waits_since = control.stopping() ? (waits_since == 0 ? now : waits_since) : 0;
      EXPECT_TRUE(waits_since == 0 || now - waits_since <= kWedged);
    }
  }
}

}  // namespace
}  // namespace sluice::server::training
