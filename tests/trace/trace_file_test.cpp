// The file of a traced process: whole records only, whatever happens to the process or the disk.
#include "intercept/trace/trace_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/child.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::intercept {
namespace {

constexpr std::uint64_t kLimit = 64U << 20U;

/// What is in a file, as bytes of the stated layout.
struct Read {
  shm::TraceHeader header{};
  std::vector<std::array<char, sizeof(shm::TraceRecord)>> records;

  explicit Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    in.read(reinterpret_cast<char*>(&header), sizeof(header));
    in.seekg(shm::kTraceHeaderSize);
    std::array<char, sizeof(shm::TraceRecord)> bytes{};
    while (in.read(bytes.data(), bytes.size())) {
      if (kind(bytes) != 0) records.push_back(bytes);
    }
  }
  static std::uint16_t kind(const std::array<char, sizeof(shm::TraceRecord)>& bytes) {
    return field<std::uint16_t>(bytes, 0);
  }
  template <class Field>
  static Field field(const std::array<char, sizeof(shm::TraceRecord)>& bytes, std::size_t offset) {
    Field value{};
    std::memcpy(&value, bytes.data() + offset, sizeof(value));
    return value;
  }
};

class TraceFileTest : public testing::Test {
 protected:
  TraceFile* create(std::uint64_t limit = kLimit) const {
    shm::TraceHeader header{};
    header.magic = shm::kTraceMagic;
    return TraceFile::create(path_, header, limit);
  }

  const test::TempFolder folder_;
  std::string path_ = folder_.file("1.sltrace");
};

/// Every field says the same number, so that a torn record shows.
void write_number(TraceFile& file, std::uint64_t number) {
  shm::TraceRecord record{};
  record.begin_ns = record.end_ns = record.correlation = record.stream = record.a = record.b =
      record.name = number;
  record.thread = static_cast<std::uint32_t>(number);
  file.write(shm::TraceKind::kLaunch, record);
}

/// The numbers of the records; fails on a torn one or one that stands there twice.
std::set<std::uint64_t> numbers_in(const Read& read) {
  std::set<std::uint64_t> numbers;
  for (const auto& record : read.records) {
    const auto number = Read::field<std::uint64_t>(record, 8);
    EXPECT_TRUE(numbers.insert(number).second) << number << " twice";
    EXPECT_EQ(Read::field<std::uint32_t>(record, 4), static_cast<std::uint32_t>(number));
    for (std::size_t offset = 16; offset < record.size(); offset += 8) {
      EXPECT_EQ(Read::field<std::uint64_t>(record, offset), number) << "torn at " << offset;
    }
  }
  return numbers;
}

// Records of several threads must not overwrite each other, and none may be lost while there is
// room.
TEST_F(TraceFileTest, RecordsOfManyThreadsAreAllThere) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kEach = 30'000;  // two growths of the file in all
  TraceFile* file = create();
  ASSERT_NE(file, nullptr);
  std::atomic<std::uint64_t> done{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kEach; ++i) write_number(*file, t * kEach + i + 1);
      ++done;
    });
  }
  while (done.load() < kThreads) file->tend();
  for (std::thread& thread : threads) thread.join();
  file->tend();
  const std::set<std::uint64_t> numbers = numbers_in(Read(path_));
  EXPECT_EQ(numbers.size() + file->header().lost, kThreads * kEach);
  EXPECT_EQ(file->header().lost, 0U);
}

// A killed process has written whole records, all that it counted before it died.
TEST_F(TraceFileTest, KilledProcessLeavesWholeRecords) {
  for (int round = 0; round < 10; ++round) {
    base::Pipe pipe;
    test::ForkedChild child([&] {
      TraceFile* file = create();
      for (std::uint64_t i = 1;; ++i) {
        write_number(*file, i);
        if (i % 64 == 0) file->tend();
        if (write(pipe.write.get(), &i, sizeof(i)) != sizeof(i)) return 1;
      }
    });
    pipe.write.reset();
    std::uint64_t told = 0;
    for (int i = 0; i < 200 + 37 * round; ++i) {
      ASSERT_EQ(read(pipe.read.get(), &told, sizeof(told)), static_cast<ssize_t>(sizeof(told)));
    }
    child.signal(SIGKILL);
    child.wait();
    while (read(pipe.read.get(), &told, sizeof(told)) == static_cast<ssize_t>(sizeof(told))) {
    }
    const std::set<std::uint64_t> numbers = numbers_in(Read(path_));
    ASSERT_GE(numbers.size(), told);
    EXPECT_EQ(*numbers.rbegin(), numbers.size()) << "a record in the middle is missing";
  }
}

TEST_F(TraceFileTest, WhatIsOverTheLimitIsCounted) {
  constexpr std::uint64_t kSmall = shm::kTraceHeaderSize + 2 * 64 * TraceFile::kChunkRecords;
  TraceFile* file = create(kSmall);
  ASSERT_NE(file, nullptr);
  constexpr std::uint64_t kMany = 3 * TraceFile::kChunkRecords;
  for (std::uint64_t i = 1; i <= kMany; ++i) {
    write_number(*file, i);
    if (i % 1000 == 0) file->tend();
  }
  file->tend();
  EXPECT_STREQ(file->full(), "it has reached its limit");
  const Read read(path_);
  EXPECT_EQ(read.records.size(), 2 * TraceFile::kChunkRecords);
  EXPECT_EQ(read.header.lost, kMany - read.records.size());
  EXPECT_LE(std::filesystem::file_size(path_), kSmall);
}

// Beyond its size limit a process gets SIGXFSZ, and on a full disk SIGBUS, if it writes all the
// same.
TEST_F(TraceFileTest, NoRoomForTheFileKillsNobody) {
  test::ForkedChild child([this] {
    const rlimit limit{6U << 20U, 6U << 20U};
    setrlimit(RLIMIT_FSIZE, &limit);
    TraceFile* file = create();
    if (file == nullptr) return 2;
    for (std::uint64_t i = 1; i <= 3 * TraceFile::kChunkRecords; ++i) {
      write_number(*file, i);
      if (i % 1000 == 0) file->tend();
    }
    file->tend();
    return file->full() != nullptr && file->header().lost > 0 ? 0 : 3;
  });
  EXPECT_EQ(child.wait(), 0) << "128 + the signal that killed it";
}

/// The descriptors of this process that lead to the file.
std::vector<int> descriptors_of(const std::string& path) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (std::filesystem::read_symlink(entry.path(), error) == path) {
      found.push_back(std::stoi(entry.path().filename()));
    }
  }
  return found;
}

/// Writes three growths of the file.
void fill(TraceFile& file) {
  for (std::uint64_t i = 1; i <= 3 * TraceFile::kChunkRecords; ++i) {
    write_number(file, i);
    if (i % 1000 == 0) file.tend();
  }
}

// Prevents: a program that closes all descriptors, as a daemon does, and then has zeros in a file
// of its own, because the trace grows the descriptor that it once had, and SIGBUS.
TEST_F(TraceFileTest, ADescriptorThatTheProgramHasTakenIsLeftAlone) {
  const std::string own = folder_.file("own");
  test::ForkedChild child([&] {
    TraceFile* file = create();
    if (file == nullptr) return 2;
    const int program = open(own.c_str(), O_RDWR | O_CREAT, 0600);
    for (const int fd : descriptors_of(path_)) dup2(program, fd);
    fill(*file);
    return file->full() == nullptr && file->header().lost == 0 ? 0 : 3;
  });
  EXPECT_EQ(child.wait(), 0) << "128 + the signal that killed it";
  EXPECT_EQ(std::filesystem::file_size(own), 0U);
  EXPECT_EQ(Read(path_).records.size(), 3 * TraceFile::kChunkRecords);
}

// The same where the trace has no name any more either.
TEST_F(TraceFileTest, ALostFileIsGivenUp) {
  const std::string own = folder_.file("own");
  test::ForkedChild child([&] {
    TraceFile* file = create();
    if (file == nullptr) return 2;
    const int program = open(own.c_str(), O_RDWR | O_CREAT, 0600);
    for (const int fd : descriptors_of(path_)) dup2(program, fd);
    std::filesystem::rename(own, path_);  // another file under the trace's name
    fill(*file);
    return file->full() != nullptr && file->header().lost > 0 ? 0 : 3;
  });
  EXPECT_EQ(child.wait(), 0) << "128 + the signal that killed it";
  EXPECT_EQ(std::filesystem::file_size(path_), 0U);
}

// Prevents: output of a program that has closed its standard output, written into its trace.
TEST_F(TraceFileTest, TheFileIsNoStandardStream) {
  test::ForkedChild child([this] {
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    if (create() == nullptr) return 2;
    const std::vector<int> found = descriptors_of(path_);
    return found.size() == 1 && found[0] > STDERR_FILENO ? 0 : 3;
  });
  EXPECT_EQ(child.wait(), 0);
}

// Prevents: in a folder that others may write to, a link that leads the trace over a file of the
// user's; and an older trace cut under a process that still writes to it.
TEST_F(TraceFileTest, WhatHasItsNameIsReplacedAndNotWrittenTo) {
  const std::string precious = folder_.file("precious");
  std::ofstream(precious) << "text";
  std::filesystem::create_symlink(precious, path_);
  ASSERT_NE(create(), nullptr);
  EXPECT_EQ(std::filesystem::file_size(precious), 4U);
  EXPECT_FALSE(std::filesystem::is_symlink(path_));
  std::filesystem::remove(path_);
  std::filesystem::create_hard_link(precious, path_);
  ASSERT_NE(create(), nullptr);
  EXPECT_EQ(std::filesystem::file_size(precious), 4U);
}

TEST_F(TraceFileTest, LongNamesComeInPieces) {
  TraceFile* file = create();
  ASSERT_NE(file, nullptr);
  std::string name;
  for (int i = 0; i < 97; ++i) name += static_cast<char>('a' + i % 26);
  file->write_name(5, name.c_str());
  const Read read(path_);
  std::string joined(3 * shm::kTraceNamePiece, '\0');
  ASSERT_EQ(read.records.size(), 3U);
  for (const auto& record : read.records) {
    EXPECT_EQ(Read::kind(record), static_cast<std::uint16_t>(shm::TraceKind::kName));
    EXPECT_EQ(Read::field<std::uint64_t>(record, 56), 5U);
    EXPECT_EQ(Read::field<std::uint64_t>(record, 24), name.size());
    const std::size_t at = Read::field<std::uint16_t>(record, 2) * shm::kTraceNamePiece;
    std::memcpy(joined.data() + at, record.data() + 8, 16);
    std::memcpy(joined.data() + at + 16, record.data() + 32, 24);
  }
  joined.resize(name.size());
  EXPECT_EQ(joined, name);
}

TEST_F(TraceFileTest, FolderThatIsNotThereIsToldByErrno) {
  path_ = folder_.file("missing/1.sltrace");
  errno = 0;
  EXPECT_EQ(create(), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace sluice::intercept
