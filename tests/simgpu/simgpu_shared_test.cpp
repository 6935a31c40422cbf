// A simulated GPU of a folder, SLUICE_SIMGPU_DIR, with one user. The test process makes no driver
// call: its children make them, each after its fork.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <list>

#include "base/processes.hpp"
#include "tests/simgpu/gpu.hpp"
#include "tests/simgpu/shared_folder.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/session.hpp"
#include "tests/support/shared.hpp"

namespace {

using sluice::simgpu::test::SharedFolder;
using sluice::test::eventually;
using sluice::test::ForkedChild;
using sluice::test::kProgramPatience;

struct Words {
  std::atomic<std::uint32_t> begun;
  std::atomic<std::uint32_t> ready;
  std::atomic<std::uint32_t> end;
};

class Shared : public testing::Test {
 protected:
  // Uses the GPU until the test says so.
  int stay() const {
    if (cuInit(0) != CUDA_SUCCESS) return 3;
    ++words.ready;
    return eventually([this] { return words.end != 0; }, 3 * kProgramPatience) ? 0 : 4;
  }
  [[nodiscard]] sluice::base::Fd lock_folder() const {
    sluice::base::Fd fd(open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    EXPECT_EQ(flock(fd.get(), LOCK_EX), 0);
    return fd;
  }
  [[nodiscard]] bool ready(unsigned count) const {
    return eventually([&] { return words.ready == count; }, kProgramPatience);
  }

  const sluice::test::Session session{"shared"};
  const SharedFolder folder;
  const sluice::test::Shared<Words> page;
  Words& words = *page;
};

// All look for a GPU process before there is one. Seen to fail when they did not look again after
// they had waited for each other.
TEST_F(Shared, SessionsOfAFolderHaveOneGpuThatEndsAfterThem) {
  const sluice::base::Fd locked = lock_folder();
  std::list<ForkedChild> children;
  for (int i = 0; i < 6; ++i) {
    children.emplace_back([&, i] {
      setenv("SLUICE_SESSION", (session.name() + "." + std::to_string(i)).c_str(), 1);
      ++words.begun;
      return stay();
    });
  }
  const auto all_wait = [&] {
    return words.begun == 6 && std::all_of(children.begin(), children.end(),
                                           [](const ForkedChild& child) { return child.sleeps(); });
  };
  EXPECT_TRUE(eventually(all_wait, kProgramPatience));
  flock(locked.get(), LOCK_UN);  // closing it is not enough: children have it too
  ASSERT_TRUE(ready(6));
  EXPECT_EQ(folder.gpus().size(), 1U);
  EXPECT_TRUE(sluice::test::files_of_session(session.name()).empty());
  words.end = 1;
  for (ForkedChild& child : children) EXPECT_EQ(child.wait(kProgramPatience), 0);
  EXPECT_TRUE(folder.is_left_empty());
  EXPECT_TRUE(std::filesystem::exists(folder.path()));
}

TEST_F(Shared, WhatKilledProcessesLeftIsRemovedByTheNextStart) {
  words.end = 1;
  ASSERT_EQ(ForkedChild([&] { return stay(); }).wait(kProgramPatience), 0);
  const pid_t killed = folder.gpu();
  ASSERT_GT(killed, 0);
  kill(killed, SIGKILL);
  ASSERT_TRUE(eventually([&] { return folder.gpus().empty(); }, kProgramPatience));
  ASSERT_EQ(folder.sockets().size(), 1U);
  // A starter that was killed before its socket was finished.
  const int unfinished = open(folder.file("simgpu-0.new").c_str(), O_CREAT | O_WRONLY, 0600);
  ASSERT_GE(unfinished, 0);
  close(unfinished);
  ASSERT_EQ(ForkedChild([&] { return stay(); }).wait(kProgramPatience), 0);
  EXPECT_GT(folder.gpu(), 0);
  EXPECT_EQ(folder.sockets().size(), 1U);
  EXPECT_FALSE(std::filesystem::exists(folder.file("simgpu-0.new")));
  EXPECT_TRUE(folder.is_left_empty());
}

std::uint64_t sleeps_of(pid_t pid) {
  const std::string status = sluice::base::read_proc(pid, "status", 8192);
  const std::string key = "\nvoluntary_ctxt_switches:";
  const std::size_t at = status.find(key);
  return at == std::string::npos ? 0 : std::stoull(status.substr(at + key.size()));
}

// Prevents: whoever has the folder's lock, for example a stopped program of another user, stops the
// GPU of all. Seen to fail when the GPU process waited for the lock.
TEST_F(Shared, AGpuThatWantsToEndServesOnWhileTheFolderIsLocked) {
  ForkedChild first([&] { return stay(); });
  ASSERT_TRUE(ready(1));
  const pid_t gpu = folder.gpu();
  const sluice::base::Fd locked = lock_folder();
  words.end = 1;
  EXPECT_EQ(first.wait(kProgramPatience), 0);
  // A process without clients sleeps once, for a second. Then it tries again and again to end.
  const std::uint64_t before = sleeps_of(gpu);
  EXPECT_TRUE(eventually([&] { return sleeps_of(gpu) > before + 20; }, kProgramPatience));
  EXPECT_EQ(ForkedChild([&] { return stay(); }).wait(kProgramPatience), 0);
  EXPECT_EQ(folder.gpu(), gpu);
  flock(locked.get(), LOCK_UN);  // closing it is not enough: children have it too
  EXPECT_TRUE(folder.is_left_empty());
}

TEST_F(Shared, AFolderThatCannotBeUsedIsNamedInOneLine) {
  const auto refused = [&](const std::string& value, const std::string& why) {
    setenv("SLUICE_SIMGPU_DIR", value.c_str(), 1);
    const sluice::test::TempFolder output;
    ForkedChild child([&] {
      const int file = open(output.file("lines").c_str(), O_CREAT | O_WRONLY, 0600);
      dup2(file, 2);
      return cuInit(0) == CUDA_ERROR_DEVICE_UNAVAILABLE ? 0 : 3;
    });
    EXPECT_EQ(child.wait(kProgramPatience), 0) << value;
    EXPECT_EQ(sluice::test::read_file(output.file("lines")),
              "sluice: no simulated GPU: SLUICE_SIMGPU_DIR=" + value + ": " + why + "\n");
  };
  refused("here", "not an absolute path");
  refused(folder.file("missing"), "no such folder; make it with mode 1777");
  const std::string deep = folder.file(std::string(100, 'd'));
  refused(deep, "too long for a socket");
  ASSERT_EQ(chmod(folder.path().c_str(), 0777), 0);
  refused(folder.path(), "every user could remove the GPU's socket; chmod +t the folder");
}

}  // namespace
