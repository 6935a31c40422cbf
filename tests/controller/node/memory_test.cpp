// The memory of the node's board, and what is not such memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "shm/mapping.hpp"
#include "shm/node_memory.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string fault_of(const base::Fd& file) { return memory_fault(file.get(), geteuid()); }

base::Fd memory_of(off_t size, int seals) {
  base::Fd memory(memfd_create(kNodeMemory, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(memory.get(), size), 0);
  EXPECT_EQ(fcntl(memory.get(), F_ADD_SEALS, seals), 0);
  return memory;
}

TEST(NodeMemory, NewMemoryIsAnEmptyBoardOfItsUserAlone) {
  const base::Fd memory = make_node_memory();
  EXPECT_EQ(fault_of(memory), "");
  struct stat found {};
  ASSERT_EQ(fstat(memory.get(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
  EXPECT_NE(fcntl(memory.get(), F_GETFD) & FD_CLOEXEC, 0);
  const auto mapping =
      BoardMapping::of_memory(base::Fd(dup(memory.get())), geteuid(), BoardMapping::Access::kUse);
  EXPECT_EQ(mapping.board().used.load(), 0U);
  EXPECT_NE(mapping.board().board_id.load(), 0U);
}

// Prevents: a file that its maker can shorten, or a pipe, is mapped as the board.
TEST(NodeMemory, OtherFilesAreRefused) {
  constexpr off_t kSize = sizeof(Board);
  EXPECT_EQ(fault_of(memory_of(kSize, kSeals)), "");
  for (const int missing : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL}) {
    EXPECT_EQ(fault_of(memory_of(kSize, kSeals & ~missing)), "is not sealed") << missing;
  }
  EXPECT_NE(fault_of(memory_of(kSize - 1, kSeals)).find("is truncated"), std::string::npos);
  EXPECT_NE(fault_of(memory_of(kSize + 1, kSeals)), "");
  EXPECT_EQ(memory_fault(memory_of(kSize, kSeals).get(), geteuid() + 1),
            "belongs to uid " + std::to_string(geteuid()));
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  EXPECT_EQ(fault_of(base::Fd(ends[0])), "is not memory");
  EXPECT_EQ(fault_of(base::Fd(ends[1])), "is not memory");
  EXPECT_NE(fault_of(base::Fd(-1)), "");
  const test::TempFolder folder;
  const base::Fd file(open(folder.write("file", std::string(sizeof(Board), 'x')).c_str(), O_RDWR));
  EXPECT_EQ(fault_of(file), "is not sealed");
}

// Prevents: memory without a board, or with one of another version, is used as the board.
TEST(NodeMemory, TheLayoutIsChecked) {
  const auto map = [](base::Fd memory) {
    return BoardMapping::of_memory(std::move(memory), geteuid(), BoardMapping::Access::kUse);
  };
  EXPECT_THROW(map(memory_of(sizeof(Board), kSeals)), BoardError) << "zeros";
  base::Fd memory = make_node_memory();
  map(base::Fd(dup(memory.get()))).board().layout_version.store(kLayoutVersion + 1);
  EXPECT_THROW(map(std::move(memory)), BoardError);
}

// Prevents: `sluice status` of any user changes the board.
TEST(NodeMemory, ADescriptorForReadingCannotWrite) {
  const base::Fd memory = make_node_memory();
  const base::Fd reader = read_only(memory.get());
  ASSERT_TRUE(reader);
  EXPECT_EQ(fault_of(reader), "");
  EXPECT_EQ(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, reader.get(), 0),
            MAP_FAILED);
  EXPECT_EQ(ftruncate(memory.get(), 0), -1) << "sealed";
}

// Prevents: the pages of a forked child are still the board, and its descriptor stays open; or it
// closes a file of the program.
TEST(NodeMemory, AForkedChildAbandonsIt) {
  base::Fd memory = make_node_memory();
  const int number = memory.get();
  auto mapping = BoardMapping::of_memory(std::move(memory), geteuid(), BoardMapping::Access::kUse);
  mapping.abandon_in_child();
  EXPECT_EQ(fcntl(number, F_GETFD), -1);
  EXPECT_EQ(mapping.board().magic.load(), 0U) << "private, empty memory";

  base::Fd other = make_node_memory();
  const int taken = other.get();
  auto second = BoardMapping::of_memory(std::move(other), geteuid(), BoardMapping::Access::kUse);
  const base::Fd foreign(open("/dev/null", O_RDONLY));
  ASSERT_EQ(dup2(foreign.get(), taken), taken);  // the program has closed ours
  second.abandon_in_child();
  EXPECT_NE(fcntl(taken, F_GETFD), -1) << "a file of the program was closed";
  close(taken);
}

}  // namespace
}  // namespace sluice::shm
