// One simulated GPU for several users, with real users. Only root can become another user: skipped
// otherwise. The test process makes no driver call: its children make them, each after its fork.
#include <grp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <array>
#include <atomic>
#include <vector>

#include "base/clock.hpp"
#include "base/session.hpp"
#include "simgpu/channel/messages.hpp"
#include "simgpu/channel/packet.hpp"
#include "tests/simgpu/gpu.hpp"
#include "tests/simgpu/shared_folder.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/gpu_log.hpp"
#include "tests/support/session.hpp"

namespace {

using sluice::simgpu::test::Gpu;
using sluice::simgpu::test::SharedFolder;
using sluice::test::eventually;
using sluice::test::ForkedChild;
using sluice::test::kProgramPatience;
using sluice::test::LoggedWork;

constexpr uid_t kAnna = 64001;
constexpr uid_t kBert = 64002;
constexpr uid_t kCara = 64003;

void become(uid_t user) {
  if (setgroups(0, nullptr) != 0 || setresgid(user, user, user) != 0 ||
      setresuid(user, user, user) != 0) {
    _exit(90);
  }
  prctl(PR_SET_DUMPABLE, 1);  // as after an exec
}

bool can_run_programs_here(uid_t user) {
  ForkedChild child([&] {
    become(user);
    return access(SLUICE_SIMGPU, X_OK);
  });
  return child.wait(kProgramPatience) == 0;
}

struct Words {
  std::atomic<std::uint64_t> gate;
  std::atomic<std::uint32_t> ready;
  std::atomic<std::uint32_t> end;
  std::atomic<pid_t> gpu;
};

// A page of a file without a name and without an owner that matters, like the board of a node. The
// children inherit its descriptor, by which their drivers find the file.
class SharedWords {
 public:
  SharedWords() : file_(memfd_create("words", 0)) {
    EXPECT_EQ(ftruncate(file_.get(), 4096), 0);
    words_ = static_cast<Words*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0));
    EXPECT_NE(words_, MAP_FAILED);
  }
  ~SharedWords() { munmap(words_, 4096); }
  SharedWords(const SharedWords&) = delete;
  SharedWords& operator=(const SharedWords&) = delete;
  [[nodiscard]] Words& get() const { return *words_; }

 private:
  sluice::base::Fd file_;
  Words* words_;
};

class Users : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become two users";
    if (!can_run_programs_here(kAnna)) {
      GTEST_SKIP() << "other users cannot run " << SLUICE_SIMGPU << "; build in another folder";
    }
    setenv("SLUICE_SIM_SCALE", "2", 1);
  }
  void TearDown() override {
    EXPECT_TRUE(folder.is_left_empty());
    unsetenv("SLUICE_SIM_SCALE");
    unsetenv("SLUICE_SIM_LOG");
    unsetenv("SLUICE_SIM_MEMORY_MIB");
  }

  template <class Body>
  static auto as(uid_t user, Body body) {
    return [user, body] {
      become(user);
      return body();
    };
  }
  [[nodiscard]] bool ready(unsigned count) const {
    return eventually([&] { return words.ready == count; }, kProgramPatience);
  }
  // Uses the GPU until the test says so.
  int stay() const {
    if (cuInit(0) != CUDA_SUCCESS) return 3;
    ++words.ready;
    return eventually([this] { return words.end != 0; }, 3 * kProgramPatience) ? 0 : 4;
  }
  // Queues kernels behind a wait for the gate.
  int run_kernels(unsigned count, std::uint64_t ns) const {
    const Gpu gpu;
    CUstream stream = nullptr;
    CUdeviceptr gate = 0;
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (cuMemHostRegister(&words, 4096, 0) != CUDA_SUCCESS) return 3;
    cuMemHostGetDevicePointer(&gate, &words.gate, 0);
    if (cuStreamWaitValue64(stream, gate, 0, CU_STREAM_WAIT_VALUE_EQ) != CUDA_SUCCESS) return 4;
    for (unsigned i = 0; i < count; ++i) {
      if (gpu.launch(stream, ns) != CUDA_SUCCESS) return 5;
    }
    ++words.ready;
    return cuStreamSynchronize(stream) == CUDA_SUCCESS ? 0 : 6;
  }

  const sluice::test::Session session{"users"};
  const SharedFolder folder;
  const SharedWords page;
  Words& words = page.get();
};

// All times are those of the GPU's clock. Seen to fail when each user had a GPU of their own, and
// when a wait on the gate passed at once.
TEST_F(Users, WorkOfOneDelaysWorkOfTheOther) {
  const std::string log = folder.file("log");
  setenv("SLUICE_SIM_LOG", log.c_str(), 1);
  words.gate = 1;
  constexpr unsigned kKernels = 40;
  ForkedChild anna(as(kAnna, [&] { return run_kernels(kKernels, 900'000); }));
  ASSERT_TRUE(ready(1));
  ForkedChild bert(as(kBert, [&] { return run_kernels(kKernels, 900'000); }));
  ASSERT_TRUE(ready(2));
  EXPECT_EQ(folder.gpus().size(), 1U);
  const std::uint64_t opened = sluice::base::monotonic_ns();
  words.gate = 0;
  EXPECT_EQ(anna.wait(kProgramPatience), 0);
  EXPECT_EQ(bert.wait(kProgramPatience), 0);
  ASSERT_TRUE(folder.is_left_empty());

  const sluice::test::GpuLog all(log);
  constexpr std::uint64_t kAlone = std::uint64_t{kKernels} * 1'800'000;
  for (const pid_t user : {anna.pid(), bert.pid()}) {
    std::vector<LoggedWork> kernels;
    for (const auto& [stream, work] : all.of(user)) kernels = work;
    ASSERT_EQ(kernels.size(), kKernels);
    EXPECT_GT(kernels.front().start_ns, opened);
    EXPECT_GT(kernels.back().end_ns - kernels.front().start_ns, kAlone + kAlone / 2);
  }
}

TEST_F(Users, MemoryOfOneIsMissingToTheOtherUntilItsProgramEnds) {
  setenv("SLUICE_SIM_MEMORY_MIB", "64", 1);
  constexpr std::size_t kMost = std::size_t{40} << 20;
  ForkedChild anna(as(kAnna, [&] {
    const Gpu gpu;
    CUdeviceptr memory = 0;
    return cuMemAlloc(&memory, kMost) == CUDA_SUCCESS ? stay() : 5;
  }));
  ASSERT_TRUE(ready(1));
  ForkedChild bert(as(kBert, [&] {
    const Gpu gpu;
    CUdeviceptr memory = 0;
    std::size_t free = 0;
    std::size_t total = 0;
    if (cuMemGetInfo(&free, &total) != CUDA_SUCCESS || free != total - kMost) return 3;
    if (cuMemAlloc(&memory, kMost) != CUDA_ERROR_OUT_OF_MEMORY) return 4;
    ++words.ready;
    const auto allocates = [&] { return cuMemAlloc(&memory, kMost) == CUDA_SUCCESS; };
    return eventually(allocates, kProgramPatience) ? 0 : 5;
  }));
  ASSERT_TRUE(ready(2));
  anna.signal(SIGKILL);
  EXPECT_EQ(bert.wait(2 * kProgramPatience), 0);
}

TEST_F(Users, TheGpuOutlivesItsStarterAndNoOtherUserCanEndIt) {
  ForkedChild anna(as(kAnna, [&] { return stay(); }));
  ASSERT_TRUE(ready(1));
  words.gpu = folder.gpu();
  ASSERT_GT(words.gpu, 0);
  const std::string socket = folder.sockets().front();
  ForkedChild bert(as(kBert, [&] {
    const Gpu gpu;
    ++words.ready;
    if (!eventually([this] { return words.end == 2; }, kProgramPatience)) return 3;
    if (kill(words.gpu, SIGTERM) == 0 || kill(words.gpu, SIGKILL) == 0) return 4;
    if (unlink(socket.c_str()) == 0) return 5;
    if (gpu.launch(nullptr, 1000) != CUDA_SUCCESS) return 6;
    return cuCtxSynchronize() == CUDA_SUCCESS ? 0 : 7;
  }));
  ASSERT_TRUE(ready(2));
  words.end = 1;
  EXPECT_EQ(anna.wait(kProgramPatience), 0);
  words.end = 2;
  EXPECT_EQ(bert.wait(kProgramPatience), 0);
  EXPECT_EQ(folder.gpu(), words.gpu);
}

// Bert cannot remove what Anna's killed GPU process left. Seen to fail with one name for the
// sockets of all.
TEST_F(Users, AfterAKilledGpuAnotherUserStartsOneAndTheFirstUserFindsIt) {
  words.end = 1;
  ASSERT_EQ(ForkedChild(as(kAnna, [&] { return stay(); })).wait(kProgramPatience), 0);
  const pid_t killed = folder.gpu();
  ASSERT_GT(killed, 0);
  kill(killed, SIGKILL);
  ASSERT_TRUE(eventually([&] { return folder.gpus().empty(); }, kProgramPatience));
  words.end = 0;
  words.ready = 0;
  ForkedChild bert(as(kBert, [&] { return stay(); }));
  ASSERT_TRUE(ready(1));
  const pid_t second = folder.gpu();
  EXPECT_GT(second, 0);
  EXPECT_NE(second, killed);
  ForkedChild anna(as(kAnna, [&] { return stay(); }));
  ASSERT_TRUE(ready(2));
  EXPECT_EQ(folder.gpu(), second);
  EXPECT_EQ(folder.sockets().size(), 2U) << "a socket that nobody but Anna may remove";
  words.end = 1;
  EXPECT_EQ(bert.wait(kProgramPatience), 0);
  EXPECT_EQ(anna.wait(kProgramPatience), 0);
  ASSERT_TRUE(eventually([&] { return folder.sockets().size() == 1; }, kProgramPatience));
  EXPECT_EQ(ForkedChild(as(kAnna, [&] { return stay(); })).wait(kProgramPatience), 0);
}

// Whether the GPU process behind the socket answers requests of this user.
bool answers(const std::string& socket) {
  const sluice::base::Fd connection = sluice::simgpu::test::connect_to(socket);
  sluice::simgpu::Reply reply;
  sluice::base::Fd file;
  return connection && sluice::simgpu::send_packet(connection.get(), sluice::simgpu::Request()) &&
         sluice::simgpu::receive_packet(connection.get(), reply, file) == 1;
}

TEST_F(Users, WithoutTheVariableAUserHasAGpuForThemselvesAlone) {
  ForkedChild anna(as(kAnna, [&] { return stay(); }));
  ASSERT_TRUE(ready(1));
  ForkedChild cara(as(kCara, [&] {
    unsetenv("SLUICE_SIMGPU_DIR");
    return stay();
  }));
  ASSERT_TRUE(ready(2));
  const std::string runtime_dir = "/dev/shm/sluice-" + std::to_string(kCara);
  const std::string socket = runtime_dir + "/" + session.name() + ".simgpu";
  const pid_t own = sluice::simgpu::test::pid_behind(socket);
  EXPECT_GT(own, 0);
  EXPECT_NE(folder.gpu(), 0);
  EXPECT_NE(own, folder.gpu());
  EXPECT_TRUE(answers(folder.sockets().front()));
  EXPECT_FALSE(answers(socket)) << "answered to root";
  words.end = 1;
  EXPECT_EQ(anna.wait(kProgramPatience), 0);
  EXPECT_EQ(cara.wait(kProgramPatience), 0);
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(socket); }, kProgramPatience));
}

CUresult copy_in_a_capture(CUdeviceptr to, const void* from) {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  const CUresult result = cuMemcpyHtoDAsync(to, from, 64, stream);
  cuStreamEndCapture(stream, &graph);
  return result;
}

int use_private_memory(CUresult expected) {
  const Gpu gpu;
  static std::array<std::uint64_t, 1024> words{1, 2, 3};
  std::array<std::uint64_t, 8> back{};
  CUdeviceptr memory = 0;
  if (cuMemAlloc(&memory, 4096) != CUDA_SUCCESS) return 3;
  if (cuMemcpyHtoDAsync(memory, words.data(), 64, nullptr) != CUDA_SUCCESS) return 4;
  if (cuMemcpyDtoH(back.data(), memory, 64) != CUDA_SUCCESS || back[2] != 3) return 5;
  if (copy_in_a_capture(memory, words.data()) != expected) return 6;
  return cuMemHostRegister(words.data(), 4096, 0) == expected ? 0 : 7;
}

// The GPU process of another user cannot read private memory. Then a wait would pass at once, and a
// copy would move nothing. Seen to fail without the request kReachMemory.
TEST_F(Users, PrivateMemoryThatTheGpuCannotReadIsRefused) {
  ForkedChild anna(as(kAnna, [&] { return stay(); }));
  ASSERT_TRUE(ready(1));
  ForkedChild own(as(kAnna, [&] { return use_private_memory(CUDA_SUCCESS); }));
  EXPECT_EQ(own.wait(kProgramPatience), 0);
  ForkedChild bert(as(kBert, [&] { return use_private_memory(CUDA_ERROR_NOT_SUPPORTED); }));
  EXPECT_EQ(bert.wait(kProgramPatience), 0);
  words.end = 1;
  EXPECT_EQ(anna.wait(kProgramPatience), 0);
}

}  // namespace
