#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <stdexcept>

#include "simgpu/gpu/simulation.hpp"

namespace sluice::intercept::test {

/// The simulated GPU in virtual time: nothing sleeps, and the time is what the test says.
class VirtualGpu {
 public:
  /// One stream of one process with a context of its own.
  class Stream {
   public:
    Stream(simgpu::Simulation& gpu, std::uint32_t context) {
      auto client = std::make_unique<simgpu::Client>(getpid(), base::Fd());
      const base::Fd file(memfd_create("virtual-gpu", MFD_CLOEXEC));
      if (ftruncate(file.get(), sizeof(simgpu::Area)) != 0) throw std::runtime_error("memfd");
      client->area_mapping = simgpu::Mapping(file.get(), sizeof(simgpu::Area), 0);
      area_ = client->area();
      simgpu::Channel& own = channel();
      own.state = simgpu::ChannelState::kOpen;
      own.kind = simgpu::ChannelKind::kNonBlocking;
      own.context = context;
      own.wanted = simgpu::kNothingWanted;
      area_->channels = 1;
      gpu.create_context(gpu.add_client(std::move(client)), context, 0);
    }
    void kernel(std::uint64_t ns, std::uint64_t now) {
      simgpu::Work work;
      work.op = simgpu::Op::kKernel;
      work.a = ns;
      submit(work, now);
    }
    void wait_until_zero(const std::uint64_t& word, std::uint64_t now) {
      simgpu::Work work;
      work.op = simgpu::Op::kWaitValue;
      work.width = 8;
      work.flags = 1;  // equal
      work.a = reinterpret_cast<std::uint64_t>(&word);
      submit(work, now);
    }
    [[nodiscard]] std::uint64_t submitted() { return channel().submitted; }
    [[nodiscard]] std::uint64_t completed() { return channel().completed; }
    [[nodiscard]] std::uint64_t queued() { return submitted() - completed(); }

   private:
    simgpu::Channel& channel() { return area_->ring[0]; }
    void submit(const simgpu::Work& work, std::uint64_t now) {
      const std::uint64_t place = channel().submitted;
      channel().ring[place % simgpu::kRingSize] = {work, now, place};
      channel().submitted = place + 1;
    }
    simgpu::Area* area_ = nullptr;
  };

  VirtualGpu() : simulation_(1, 1, simgpu::EventLog()) {}
  [[nodiscard]] Stream add_stream() { return {simulation_, ++contexts_}; }
  /// Carries out everything up to `now`. Returns the time of the next event.
  std::uint64_t advance(std::uint64_t now) { return simulation_.advance(now).next; }

 private:
  simgpu::Simulation simulation_;
  std::uint32_t contexts_ = 0;
};

}  // namespace sluice::intercept::test
