// A simulated GPU without a process, in virtual time: the test moves the clock.
#pragma once
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "simgpu/gpu/costs.hpp"
#include "simgpu/gpu/simulation.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::simgpu::test {

inline constexpr Nanoseconds kUs = 1'000;
inline constexpr Nanoseconds kMs = 1'000 * kUs;
inline constexpr Nanoseconds kZero = 1'000 * kMs;  // the time of which the tests speak as 0

struct Share {
  std::uint64_t server = 1;  // 0: no MPS
  unsigned priority = 0;
  unsigned most = kMultiprocessors;
  unsigned device = 0;
};

struct Line {
  std::string kind;
  pid_t pid = 0;
  std::uint64_t stream = 0;
  std::uint64_t sequence = 0;
  Nanoseconds start = 0;
  Nanoseconds end = 0;
  friend auto operator<=>(const Line&, const Line&) = default;
};

// A simulation of its own, at scale 1, with clients that submit by hand.
class Machine {
 public:
  explicit Machine(unsigned devices = 1)
      : simulation_(1, devices, EventLog(folder_.file("log").c_str())) {}

  Simulation& simulation() { return simulation_; }

  // A client with a context; null if its MPS server refuses it.
  Client* add(const Share& share) {
    const base::Fd file(memfd_create("area", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(file.get(), sizeof(Area)), 0);
    auto made = std::make_unique<Client>(++last_pid_, base::Fd());
    made->area_mapping = Mapping(file.get(), sizeof(Area), 0);
    Client& client = simulation_.add_client(std::move(made));
    Request request;
    request.id = share.priority;
    request.a = share.server;
    request.b = share.most;
    if (share.server != 0 && !simulation_.join_mps(client, request)) {
      simulation_.drop_client(client);
      return nullptr;
    }
    EXPECT_TRUE(simulation_.create_context(client, 1, share.device));
    return &client;
  }

  // A kernel that is ready at `at` or after the one in front of it on its stream.
  static void launch(Client& client, Nanoseconds at, Nanoseconds duration,
                     unsigned width = kMultiprocessors, unsigned stream = 0,
                     std::uint8_t flags = 0) {
    Work work;
    work.op = Op::kKernel;
    work.flags = flags;
    work.a = duration;
    work.b = width;
    Channel& channel = client.area()->ring.at(stream);
    client.area()->channels = std::max(client.area()->channels.load(), stream + 1);
    channel.state = ChannelState::kOpen;
    channel.kind = ChannelKind::kNonBlocking;
    channel.context = 1;
    channel.stream_id = stream + 1;
    channel.wanted = kNothingWanted;
    const std::uint64_t place = channel.submitted.load();
    const auto latency = static_cast<Nanoseconds>(
        place == 0 ? cost::kLaunch + cost::kLaunchAfterIdle : cost::kLaunch);
    channel.ring.at(place % kRingSize) = {work, kZero + at - latency, place + 1};
    channel.submitted = place + 1;
  }

  void advance(Nanoseconds to) { simulation_.advance(kZero + to); }

  std::vector<Line> log() {
    simulation_.flush_log();
    std::ifstream file(folder_.file("log"));
    std::vector<Line> lines;
    std::string name;
    for (Line line; file >> line.kind >> line.pid >> line.stream >> line.sequence >> line.start >>
                    line.end >> name;) {
      line.start -= kZero;
      line.end -= kZero;
      lines.push_back(line);
    }
    return lines;
  }

  // Of one client, in the order of their ends.
  std::vector<Line> kernels(const Client& client) {
    std::vector<Line> found = log();
    std::erase_if(
        found, [&](const Line& line) { return line.kind != "kernel" || line.pid != client.pid; });
    return found;
  }

 private:
  sluice::test::TempFolder folder_;
  Simulation simulation_;
  pid_t last_pid_ = 100;
};

}  // namespace sluice::simgpu::test
