// The variables of a program: good ones are in its slot, bad ones are named and replaced.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "shm/give.hpp"
#include "shm/policy.hpp"
#include "shm/target.hpp"
#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {
namespace {

class Settings : public Session {};

TEST_F(Settings, BadVariablesAreNamedOnALineEachAndReplaced) {
  catch_errors();
  setenv("SLUICE_POLICY", "event:0", 1);
  setenv("SLUICE_PRIORITY", "300", 1);
  setenv("SLUICE_LOG", "loud", 1);
  setenv("SLUICE_SLICE", "5", 1);
  setenv("SLUICE_WEIGHT", "0", 1);
  start_controller();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  const std::string said = errors();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 5) << said;
  for (const char* text : {"SLUICE_POLICY=event:0", "SLUICE_PRIORITY=300", "SLUICE_LOG=loud",
                           "SLUICE_SLICE=5", "SLUICE_WEIGHT=0"}) {
    EXPECT_NE(said.find(text), std::string::npos) << text << " in " << said;
  }
  EXPECT_EQ(shm::Policy::unpack(slot().policy.load()), shm::kDefaultPolicy);
  EXPECT_EQ(shm::SlotInfo::unpack(slot().info.load()).priority, 0);
  EXPECT_STREQ(slot().label.data(), "priority=default");
}

// Prevents: a program that nobody gave a priority and that looks like one that was meant to be best
// effort.
TEST_F(Settings, AProgramWithoutAPriorityIsLabelled) {
  unsetenv("SLUICE_PRIORITY");
  setenv("SLUICE_LABEL", "team=vision", 1);
  start_controller();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_STREQ(slot().label.data(), "team=vision,priority=default");
  EXPECT_EQ(shm::SlotInfo::unpack(slot().info.load()).priority, 0);
}

TEST_F(Settings, BadTargetsAndLabelsAreNamedAndLeftOut) {
  catch_errors();
  setenv("SLUICE_PRIORITY", "0", 1);
  setenv("SLUICE_TARGET", "50ms", 1);
  setenv("SLUICE_LABEL", "team", 1);
  setenv("SLUICE_GIVE", "5", 1);
  start_controller();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  const std::string said = errors();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 3) << said;
  for (const char* text : {"SLUICE_TARGET=50ms is no target", "SLUICE_LABEL: 'team' is not a",
                           "SLUICE_GIVE=5 is not 0, or a percentage"}) {
    EXPECT_NE(said.find(text), std::string::npos) << text << " in " << said;
  }
  EXPECT_EQ(slot().requested_target.load(), 0U);
  EXPECT_EQ(slot().requested_give.load(), 0U);
  EXPECT_STREQ(slot().label.data(), "");
}

TEST_F(Settings, TheSlotHasTheTargetAndTheLabels) {
  setenv("SLUICE_PRIORITY", "0", 1);
  setenv("SLUICE_TARGET", "p99=1.2x", 1);
  setenv("SLUICE_LABEL", "team=vision", 1);
  setenv("SLURM_JOB_ID", "4711", 1);
  start_controller();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(slot().requested_target.load(), shm::parse_target("p99=1.2x")->pack());
  EXPECT_STREQ(slot().label.data(), "team=vision,job=4711");
}

// Prevents: a program that gives what nobody asked for.
TEST_F(Settings, TheSlotHasWhatItGives) {
  setenv("SLUICE_PRIORITY", "1", 1);
  setenv("SLUICE_GIVE", "2.5%", 1);
  start_controller();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(slot().requested_give.load(), shm::pack_give(25));
}

TEST_F(Settings, ZeroIsGivenToo) {
  setenv("SLUICE_PRIORITY", "1", 1);
  setenv("SLUICE_GIVE", "0", 1);
  start_controller();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(slot().requested_give.load(), shm::pack_give(0));
}

// The namespace is in a file of the pod: tests/python/test_cdi.py.
TEST_F(Settings, APodIsALabelInKubernetesOnly) {
  setenv("SLUICE_PRIORITY", "0", 1);
  setenv("SLUICE_LABEL", "team=vision", 1);
  setenv("HOSTNAME", "train-0", 1);
  setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
  start_controller();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_STREQ(slot().label.data(), "team=vision,pod=train-0");
}

TEST_F(Settings, AHostNameAloneIsNoLabel) {
  setenv("SLUICE_PRIORITY", "0", 1);
  setenv("HOSTNAME", "train-0", 1);
  start_controller();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_STREQ(slot().label.data(), "");
}

TEST_F(Settings, LogOffIsSilent) {
  catch_errors();
  setenv("SLUICE_LOG", "off", 1);
  setenv("SLUICE_POLICY", "fast", 1);
  setenv("SLUICE_SESSION", "no session name", 1);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(errors(), "");
}

}  // namespace
}  // namespace sluice::intercept::test
