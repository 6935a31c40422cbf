// The record of the board's memory, and the search for this memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "controller/node_record.hpp"
#include "shm/node_memory.hpp"
#include "tests/support/child.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::controller {
namespace {

TEST(NodeRecord, SurvivesAsItWasWritten) {
  const test::TempFolder folder;
  const std::string file = folder.file("board");
  const NodeRecord record{1, 4711, 0xffff'ffff'ffff'fffe};
  EXPECT_FALSE(read_record(file));
  write_record(file, record);
  EXPECT_EQ(read_record(file), record);
  write_record(file, {1, 4712, 1});
  EXPECT_EQ(read_record(file), (NodeRecord{1, 4712, 1})) << "replaced";
  struct stat found {};
  ASSERT_EQ(stat(file.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
}

TEST(NodeRecord, ADamagedOneIsNone) {
  const test::TempFolder folder;
  for (const char* text : {"", "1 2", "x 2 3", "1 2 99999999999999999999999999"}) {
    EXPECT_FALSE(read_record(folder.write("board", text))) << text;
  }
}

/// A process that has all our files open and is stopped.
class Holder : public test::Child {
 public:
  Holder() : Child(fork()) {
    if (pid() == 0) {
      for (;;) pause();
    }
    stop();
  }
};

// Prevents: the board of stopped clients, or of one that only inherited it, is not found.
TEST(NodeRecord, TheMemoryIsFoundInAnotherProcess) {
  base::Fd memory = shm::make_node_memory();
  const NodeRecord record = record_of(memory.get(), 1);
  Holder holder;
  memory.reset();
  int unseen = 0;
  base::Fd found = find_memory(record, unseen);
  ASSERT_TRUE(found);
  EXPECT_EQ(record_of(found.get(), 1), record);
  EXPECT_EQ(shm::memory_fault(found.get(), geteuid()), "");
  EXPECT_EQ(fcntl(found.get(), F_GETFL) & O_ACCMODE, O_RDWR);
  found.reset();
  holder.signal(SIGKILL);
  holder.wait();
  EXPECT_FALSE(find_memory(record, unseen)) << "nobody has it any more";
}

// Prevents: another file of the same name is taken for the board.
TEST(NodeRecord, AnotherMemoryOfTheSameNameIsNotFound) {
  base::Fd memory = shm::make_node_memory();
  const base::Fd other = shm::make_node_memory();
  const NodeRecord record = record_of(memory.get(), 1);
  memory.reset();
  int unseen = 0;
  EXPECT_FALSE(find_memory(record, unseen));
  EXPECT_TRUE(find_memory(record_of(other.get(), 1), unseen));
}

}  // namespace
}  // namespace sluice::controller
