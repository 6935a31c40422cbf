// What the command line of `sluice serve` means.
#include "server/program/options.hpp"

#include <gmock/gmock.h>

#include "tests/support/temp_folder.hpp"

namespace sluice::server {
namespace {

ServeOptions parsed(std::vector<const char*> args) {
  args.insert(args.begin(), {"sluice-serve", "--models", "dummy"});
  ServeOptions options;
  std::vector<char*> pointers;
  for (const char* arg : args) pointers.push_back(const_cast<char*>(arg));
  EXPECT_EQ(parse_serve_options(static_cast<int>(pointers.size()), pointers.data(), options),
            std::nullopt);
  return options;
}

// Prevents: an option that nobody gave changes what the server does.
TEST(ServeOptions, Defaults) {
  const ServeOptions options = parsed({});
  ASSERT_EQ(options.models.size(), 1U);
  EXPECT_EQ(options.models[0].name, "dummy");
  EXPECT_EQ(options.server.dispatcher.policy, scheduler::Policy::kEdf);
  EXPECT_EQ(options.server.dispatcher.admit_factor, 1);
  EXPECT_FALSE(options.server.dispatcher.run_late);
  EXPECT_TRUE(options.server.announce);
  EXPECT_TRUE(options.server.jobs);
  EXPECT_EQ(options.server.max_queued_bytes, 1ULL << 30);
  EXPECT_EQ(options.train.mode, training::Mode::kColocateL1);
  EXPECT_EQ(options.train.policy, "device:200us,ahead:4ms");
  EXPECT_EQ(options.data.listen, "127.0.0.1");
  EXPECT_EQ(options.profile, "");
  EXPECT_FALSE(options.allow_control);
  EXPECT_EQ(options.control.listen, "");
  EXPECT_EQ(options.data.token_file, "");
}

// Prevents: in normal mode inference is announced to nobody's gate, or trainers are paced.
TEST(ServeOptions, NormalModeContends) {
  const ServeOptions options = parsed({"--mode", "normal"});
  EXPECT_EQ(options.train.policy, "none");
  EXPECT_FALSE(options.server.jobs);
  EXPECT_TRUE(options.server.announce);
  EXPECT_EQ(parsed({"--mode", "normal", "--train-policy", "sync:4"}).train.policy, "sync:4");
}

// Prevents: a gate that closes at the headers keeps a trainer from obeying the order to leave.
TEST(ServeOptions, ATaskSwitchIsNotAnnounced) {
  for (const char* mode : {"task-switch-l1", "task-switch-l2", "task-switch-l3"}) {
    EXPECT_FALSE(parsed({"--mode", mode}).server.announce) << mode;
  }
  EXPECT_TRUE(parsed({"--mode", "colocate-l2"}).server.announce);
  EXPECT_FALSE(parsed({"--no-announce"}).server.announce);
}

TEST(ServeOptions, TrainingWritesAProfile) {
  const test::TempFolder folder;
  const std::string store = folder.path();
  EXPECT_EQ(parsed({"--allow-control", "--train-store", store.c_str()}).profile, "server-profile");
  EXPECT_EQ(
      parsed({"--control", "unix:c", "--train-store", store.c_str(), "--profile", "p"}).profile,
      "p");
}

// Prevents: an option is read into the place of another one, or in another unit.
TEST(ServeOptions, EachOptionHasItsPlace) {
  const ServeOptions options = parsed({"--scheduler",
                                       "FIFO",
                                       "--admit-factor",
                                       "2.5",
                                       "--run-late",
                                       "--max-queue-mb",
                                       "3",
                                       "--records",
                                       "r",
                                       "--drain-s",
                                       "4",
                                       "--max-live-minute",
                                       "5",
                                       "--listen",
                                       "0.0.0.0",
                                       "-p",
                                       "6",
                                       "--http",
                                       "7",
                                       "--max-request-mb",
                                       "8",
                                       "--body-s",
                                       "9",
                                       "--device",
                                       "1",
                                       "--wedged-s",
                                       "11",
                                       "--json",
                                       "--verbose"});
  EXPECT_EQ(options.server.dispatcher.policy, scheduler::Policy::kFifo);
  EXPECT_EQ(options.server.dispatcher.admit_factor, 2.5);
  EXPECT_TRUE(options.server.dispatcher.run_late);
  EXPECT_EQ(options.server.max_queued_bytes, 3U << 20);
  EXPECT_EQ(options.server.records_file, "r");
  EXPECT_EQ(options.server.drain_s, 4);
  EXPECT_EQ(options.max_live_minutes, 5);
  EXPECT_EQ(options.data.listen, "0.0.0.0");
  EXPECT_EQ(options.data.grpc_port, 6);
  EXPECT_EQ(options.data.http_port, 7);
  EXPECT_EQ(options.max_request_mb, 8U);
  EXPECT_EQ(options.body_s, 9);
  EXPECT_EQ(options.device, 1);
  EXPECT_EQ(options.train.wedged_s, 11);
  EXPECT_TRUE(options.json);
  EXPECT_TRUE(options.verbose);
}

}  // namespace
}  // namespace sluice::server
