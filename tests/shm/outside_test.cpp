// Which processes of a GPU have no slot, and what can be said where pids mean nothing here.
#include "shm/outside.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <set>

#include "base/fd.hpp"
#include "tests/support/board_test.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::shm {
namespace {

class Outside : public test::BoardTest {
 protected:
  /// The pids outside, where `pids` are on the GPU.
  [[nodiscard]] std::multiset<std::uint32_t> outside(const std::vector<pid_t>& pids,
                                                     bool trust_pids) const {
    std::vector<base::GpuProcess> on_gpu;
    for (const pid_t pid : pids) on_gpu.push_back({pid, {}});
    std::multiset<std::uint32_t> found;
    for (const OutsideProcess& process :
         outside_of(take_snapshot(*board_, test::kNow), 0, on_gpu, trust_pids)) {
      found.insert(process.pid);
    }
    return found;
  }
  using Pids = std::multiset<std::uint32_t>;
};

TEST_F(Outside, AreTheProcessesWithoutASlot) {
  add_client(0, 0, "a");
  add_client(3, 9, "b");
  EXPECT_EQ(outside({100, 103}, true), Pids{});
  EXPECT_EQ(outside({100, 4242, 103, 4343}, true), (Pids{4242, 4343}));
}

// Prevents: a warning of a client that has just died, whose memory the driver has not freed yet.
TEST_F(Outside, AreWithoutClientsThatAreEnding) {
  add_client(0, 0, "a");
  set_state(0, SlotState::kDead, 0);
  EXPECT_EQ(outside({100}, true), Pids{});
}

// Prevents: in a container, a pid of the host that here belongs to somebody else.
TEST_F(Outside, AreOnlyCountedWherePidsMeanNothing) {
  add_client(0, 0, "a");
  add_client(1, 0, "b");
  EXPECT_EQ(outside({70001, 70002}, false), Pids{}) << "these are the two clients";
  EXPECT_EQ(outside({70001, 70002, 70003, 70004}, false), (Pids{0, 0}));
  EXPECT_EQ(outside({70001}, false), Pids{}) << "a client without a context yet";
  EXPECT_EQ(outside({100, 70002}, false), (Pids{70002})) << "a newer driver translates pids";
}

// Prevents: a client of another GPU taken for one of the processes of this GPU.
TEST_F(Outside, AreCountedPerDevice) {
  add_client(0, 0, "a").info.store(SlotInfo{SlotState::kLive, 0, 1, 1}.pack());
  EXPECT_EQ(outside({70001}, false), (Pids{0}));
}

/// A file that this process has mapped.
class Mapped {
 public:
  explicit Mapped(base::Fd file) : file_(std::move(file)) {
    EXPECT_EQ(ftruncate(file_.get(), 1), 0);
    memory_ = mmap(nullptr, 1, PROT_READ, MAP_SHARED, file_.get(), 0);
    EXPECT_NE(memory_, MAP_FAILED);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() { munmap(memory_, 1); }

 private:
  base::Fd file_;
  void* memory_;
};

// Prevents: a program without the interposer that nobody can name; or advice to preload it for one
// that has it.
TEST_F(Outside, AreNamedAndKnownToHaveTheInterposer) {
  const std::string session = "test-outside-" + std::to_string(getpid());
  for (const std::size_t device : {0U, 1U}) {
    board_->devices[device].used.store(1);
    std::copy(base::kSimulatedUuid.begin(), base::kSimulatedUuid.end(),
              board_->devices[device].uuid.begin());
  }
  const auto found = [&] { return describe_outside(take_snapshot(*board_, test::kNow), session); };
  EXPECT_TRUE(found().empty());
  const Mapped on_gpu(
      base::Fd(memfd_create(base::simulated_gpu_file(session, getpid()).c_str(), MFD_CLOEXEC)));
  const auto plain = found();
  ASSERT_EQ(plain.size(), 1U) << "the simulated GPUs of a session are one process";
  EXPECT_EQ(plain[0].pid, static_cast<std::uint32_t>(getpid()));
  EXPECT_NE(plain[0].command.find("shm_test"), std::string::npos) << plain[0].command;
  EXPECT_FALSE(plain[0].preloaded);
  const test::TempFolder folder;
  const Mapped interposer(base::Fd(
      open(folder.file("libsluice_intercept.so").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)));
  EXPECT_TRUE(found().at(0).preloaded);
}

}  // namespace
}  // namespace sluice::shm
