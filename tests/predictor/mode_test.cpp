// A test program that was also trained with makes every figure worthless.
#include "predictor/data/mode.hpp"

#include <gmock/gmock.h>

#include <set>

#include "base/error.hpp"
#include "synthetic.hpp"

namespace sluice::predictor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

/// Ten tasks with 10 programs on two devices; tasks 0 to 3 are resnet-18, 3 to 5 bert-base.
Dataset two_networks() {
  Dataset data = test::synthetic(10, 10, 1).data;
  data.networks = {{.name = "resnet-18", .batch = 1, .calls = {{0, {}}, {1, {}}, {2, {}}, {3, {}}}},
                   {.name = "bert-base", .batch = 1, .calls = {{3, {}}, {4, {}}, {5, {}}}}};
  return data;
}

std::set<std::size_t> tasks_in(const Dataset& data, const std::vector<Label>& labels) {
  std::set<std::size_t> tasks;
  for (const Label& label : labels) tasks.insert(data.programs[label.query.program].task);
  return tasks;
}

std::set<std::size_t> devices_in(const std::vector<Label>& labels) {
  std::set<std::size_t> devices;
  for (const Label& label : labels) devices.insert(label.query.device);
  return devices;
}

TEST(Mode, ReadsThePublishedForms) {
  const Mode net = parse_mode("h200.by_net:test-resnet_18-bert_base");
  EXPECT_THAT(net.devices, ElementsAre("h200"));
  EXPECT_THAT(net.test_networks, ElementsAre("resnet_18", "bert_base"));
  const Mode device = parse_mode("by_device:train-h200-h100,test-h200@32");
  EXPECT_THAT(device.devices, IsEmpty());
  EXPECT_THAT(device.train_devices, ElementsAre("h200", "h100"));
  EXPECT_THAT(device.test_devices, ElementsAre("h200@32"));
  const Mode sample = parse_mode("t4:sample200");
  EXPECT_THAT(sample.devices, ElementsAre("t4"));
  EXPECT_EQ(sample.sample, 200U);
  EXPECT_THAT(parse_mode("list-1-2").list, ElementsAre(1U, 2U));
  EXPECT_THAT(parse_mode("network-a-b").networks, ElementsAre("a", "b"));
  EXPECT_THAT(parse_mode("h200:without-a-b").without, ElementsAre("a", "b"));
  EXPECT_THAT(parse_mode("h200,h100:network-a.by_net:test-b").devices, ElementsAre("h200", "h100"));
}

TEST(Mode, RefusesWithThePartThatIsWrong) {
  for (const std::string wrong :
       {"h200.by_net:resnet", "h200.by_net:test-", "by_device:train-a", "by_device:test-a,train-b",
        "h200:sampleX", "h200:sample0", "list-a", "h200:half", "h200.by_moon:test-a", ",h200"}) {
    EXPECT_THAT([&] { (void)parse_mode(wrong); },
                ThrowsMessage<base::UsageError>(HasSubstr("--mode: '")))
        << wrong;
  }
}

TEST(ChooseRandom, FollowsTheSeed) {
  EXPECT_EQ(choose_random(100, 10, 7), choose_random(100, 10, 7));
  EXPECT_NE(choose_random(100, 10, 7), choose_random(100, 10, 8));
  EXPECT_EQ(choose_random(3, 10, 7).size(), 3U);
}

TEST(Fold, ANetworkThatTestsSharesNoTaskWithTheTraining) {
  const Dataset data = two_networks();
  const Fold fold = make_fold(data, parse_mode("h200.by_net:test-Resnet_18"), 0);
  EXPECT_THAT(tasks_in(data, fold.test), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(tasks_in(data, fold.train), ElementsAre(4, 5, 6, 7, 8, 9));
  EXPECT_THAT(devices_in(fold.train), ElementsAre(0));
  EXPECT_EQ(fold.test.size() + fold.train.size(), 100U);
}

// Models are chosen without the tasks that test in the end, also those that another network shares.
TEST(Fold, WhatIsLeftOutNeitherTrainsNorTests) {
  const Dataset data = two_networks();
  const Fold fold = make_fold(data, parse_mode("h200:without-resnet_18.by_net:test-bert_base"), 0);
  EXPECT_THAT(tasks_in(data, fold.test), ElementsAre(4, 5));
  EXPECT_THAT(tasks_in(data, fold.train), ElementsAre(6, 7, 8, 9));
}

TEST(Fold, DevicesAreApart) {
  const Dataset data = two_networks();
  const Fold fold = make_fold(data, parse_mode("by_device:train-h200,test-h200@32"), 0);
  EXPECT_THAT(devices_in(fold.train), ElementsAre(0));
  EXPECT_THAT(devices_in(fold.test), ElementsAre(1));
  EXPECT_EQ(fold.train.size(), 100U);
  EXPECT_EQ(fold.test.size(), 100U);
}

TEST(Fold, EveryFifthLabelTests) {
  const Dataset data = two_networks();
  Fold fold = make_fold(data, parse_mode("h200"), 0);
  EXPECT_EQ(fold.test.size(), 20U);
  EXPECT_EQ(fold.train.size(), 80U);
  std::set<std::size_t> programs;
  for (const auto* labels : {&fold.test, &fold.train}) {
    for (const Label& label : *labels) programs.insert(label.query.program);
  }
  EXPECT_EQ(programs.size(), 100U) << "a program is in both";
  // In the order of time: four train between two that test.
  std::ranges::sort(fold.test, {}, &Label::seconds);
  for (std::size_t i = 0; i < fold.test.size(); ++i) {
    const auto shorter = std::ranges::count_if(
        fold.train, [&](const Label& label) { return label.seconds < fold.test[i].seconds; });
    EXPECT_EQ(shorter, static_cast<std::ptrdiff_t>(4 * i + 2)) << i;
  }
}

TEST(Fold, ChoosesTasks) {
  const Dataset data = two_networks();
  EXPECT_THAT(tasks_in(data, make_fold(data, parse_mode("h200:list-1-7"), 0).train),
              ElementsAre(1, 7));
  EXPECT_THAT(tasks_in(data, make_fold(data, parse_mode("network-bert_base"), 0).train),
              ElementsAre(3, 4, 5));
  EXPECT_EQ(tasks_in(data, make_fold(data, parse_mode("h200:sample4"), 3).train).size(), 4U);
}

TEST(Fold, RefusesWhatIsNotThere) {
  const Dataset data = two_networks();
  const auto refuse = [&](const char* mode, const char* text) {
    EXPECT_THAT([&] { (void)make_fold(data, parse_mode(mode), 0); },
                ThrowsMessage<base::UsageError>(HasSubstr(text)));
  };
  refuse("h100", "no device 'h100' in the data set, which has H200, H200@32");
  refuse("h200.by_net:test-vgg",
         "no network 'vgg' in the data set, which has bert_base, resnet_18");
  // The name as the data set has it is two names in a mode.
  refuse("h200.by_net:test-resnet-18", "resnet_18; write _ for - in their names");
  Dataset unmeasured = data;
  unmeasured.networks.push_back(
      {.name = "dcgan", .batch = 1, .calls = {{unmeasured.tasks.size(), {}}}});
  unmeasured.tasks.push_back(data.tasks[0]);
  EXPECT_THAT([&] { (void)make_fold(unmeasured, parse_mode("by_net:test-dcgan"), 0); },
              ThrowsMessage<base::UsageError>(
                  HasSubstr("200 measured programs to train with and 0 to test with are left; "
                            "no measured program is of dcgan")));
  refuse("list-10", "there is no task 10; tasks.csv has 0 to 9");
  refuse("network-resnet_18.by_net:test-resnet_18",
         "--mode: 0 measured programs to train with and 80 to test with are left; both need some");
}

}  // namespace
}  // namespace sluice::predictor
