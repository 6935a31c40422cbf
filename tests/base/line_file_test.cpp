#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "base/error.hpp"
#include "base/output.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::base {
namespace {

// Prevents: a killed process loses the last lines of its log.
TEST(LineFile, TheKernelHasEachLineWhenWriteReturns) {
  const test::TempFolder folder;
  LineFile file(folder.file("log"));
  file.write("one\n");
  EXPECT_EQ(test::read_file(folder.file("log")), "one\n");
}

// Prevents: a run on a full disk succeeds without its results.
TEST(LineFile, AFullDiskAndAMissingFolderAreErrors) {
  LineFile full("/dev/full");
  EXPECT_THROW(full.write("one\n"), RunError);
  try {
    LineFile("/no/such/folder/log");
    FAIL() << "created a file in a missing folder";
  } catch (const RunError& error) {
    EXPECT_EQ(std::string(error.what()).find("/no/such/folder/log: cannot be created"), 0U)
        << error.what();
  }
}

// Prevents: results that are lost because the next program of a pipeline is slow.
TEST(LineFile, APipeGetsAllResults) {
  const test::TempFolder folder;
  const std::string path = folder.file("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::string found;
  std::thread reader([&] { found = test::read_file(path); });
  std::string wanted;
  {
    LineFile file(path);
    for (int i = 0; i < 100; ++i) {
      const std::string line = std::to_string(i) + std::string(10'000, 'x') + "\n";
      file.write(line);
      wanted += line;
    }
  }
  reader.join();
  EXPECT_EQ(found, wanted);
}

/// A log under the three usual ways to rotate it.
class LogTest : public testing::Test {
 protected:
  /// Writes the next numbers, one a line.
  void write(Log& log, int count) {
    for (int i = 0; i < count; ++i) log.write(std::to_string(next_++) + "\n");
  }
  static std::string numbers(int from, int to) {
    std::string text;
    for (int i = from; i < to; ++i) text += std::to_string(i) + "\n";
    return text;
  }

  const test::TempFolder folder_;
  const std::string path_ = folder_.file("log");
  int next_ = 0;
};

// Prevents: a restart deletes the lines of before.
TEST_F(LogTest, IsNotEmptiedAtAStart) {
  for (int i = 0; i < 3; ++i) {
    Log log(path_, "log");
    write(log, 2);
  }
  EXPECT_EQ(test::read_file(path_), numbers(0, 6));
}

// Prevents: NUL bytes in front of the lines after copytruncate.
TEST_F(LogTest, GoesOnAtTheEndOfAFileThatWasTruncated) {
  Log log(path_, "log");
  write(log, 5);
  std::filesystem::resize_file(path_, 0);
  write(log, 2);
  EXPECT_EQ(test::read_file(path_), numbers(5, 7));
}

// Prevents: lines that are in no file, in two, or not whole, whatever is done to the file.
TEST_F(LogTest, EachLineIsInOneFileAfterRandomRotations) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    std::optional<Log> log(std::in_place, path_, "log");
    std::string rotated;
    const int first = next_;
    for (int i = 0; i < 40; ++i) {
      write(*log, static_cast<int>(random() % 4));
      switch (random() % 4) {
        case 0:  // copytruncate
          rotated += test::read_file(path_);
          std::filesystem::resize_file(path_, 0);
          break;
        case 1: {  // rename, then an order to open it again, with lines in between
          const std::string old = folder_.file("log." + std::to_string(i));
          std::filesystem::rename(path_, old);
          write(*log, static_cast<int>(random() % 3));
          log->reopen();
          rotated += test::read_file(old);
          break;
        }
        case 2:
          log->reopen();
          break;
        default:  // a restart
          log.emplace(path_, "log");
      }
    }
    EXPECT_EQ(rotated + test::read_file(path_), numbers(first, next_)) << "seed " << seed;
    std::filesystem::remove(path_);
  }
}

// Prevents: a folder that is away for a moment, or a full disk, ends the log for good.
TEST_F(LogTest, AFileThatCannotBeOpenedLeavesTheOldOne) {
  const std::string below = folder_.file("folder");
  std::filesystem::create_directory(below);
  Log log(below + "/log", "log");
  write(log, 1);
  std::filesystem::rename(below, folder_.file("away"));
  testing::internal::CaptureStderr();
  log.reopen();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("stays in its old file"),
            std::string::npos);
  write(log, 1);
  EXPECT_EQ(test::read_file(folder_.file("away/log")), numbers(0, 2));
}

TEST_F(LogTest, AFullDiskEndsItUntilItIsOpenedAgain) {
  std::filesystem::create_symlink("/dev/full", path_);
  Log log(path_, "log");
  testing::internal::CaptureStderr();
  write(log, 3);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  std::filesystem::remove(path_);
  log.reopen();
  next_ = 0;
  write(log, 1);
  EXPECT_EQ(test::read_file(path_), numbers(0, 1));
}

TEST_F(LogTest, WithoutAPathThereIsNone) {
  Log log("", "log");
  EXPECT_FALSE(log.on());
  write(log, 1);
  log.reopen();
}

/// A log through a pipe, as those of shippers.
class PipeLogTest : public LogTest {
 protected:
  PipeLogTest() {
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
    alarm(60);  // What these tests prevent is a wait without an end.
  }
  ~PipeLogTest() override { alarm(0); }
  static std::string read_some(const Fd& reader) {
    std::string text(1 << 20, '\0');
    const ssize_t got = read(reader.get(), text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
  }
  [[nodiscard]] Fd reader() const { return Fd(open(path_.c_str(), O_RDONLY | O_NONBLOCK)); }
};

TEST_F(PipeLogTest, TheStartDoesNotWaitForAReader) {
  testing::internal::CaptureStderr();
  Log log(path_, "log");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("nobody reads the pipe " + path_), std::string::npos) << said;
  write(log, 3);
  EXPECT_EQ(read_some(reader()), numbers(0, 3)) << "what a pipe holds waits for its reader";
}

TEST_F(PipeLogTest, AReaderThatIsThereIsNoNews) {
  const Fd there = reader();
  testing::internal::CaptureStderr();
  Log log(path_, "log");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// Prevents: a shipper that has waited for the server ends at once.
TEST_F(PipeLogTest, AReaderThatWaitedGetsEverything) {
  test::ForkedChild reader([&] { return test::read_file(path_) == numbers(0, 3) ? 0 : 1; });
  ASSERT_TRUE(test::eventually([&] { return reader.sleeps(); }));
  {
    Log log(path_, "log");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    write(log, 3);
  }
  EXPECT_EQ(reader.wait(), 0);
}

// Prevents: SIGPIPE, or a log that has ended, after a restart of the shipper.
TEST_F(PipeLogTest, OutlivesItsReaders) {
  Log log(path_, "log");
  for (int i = 0; i < 5; ++i) {
    const Fd one = reader();
    write(log, 2);
    EXPECT_EQ(read_some(one), numbers(2 * i, 2 * i + 2));
  }
  write(log, 2);
  EXPECT_EQ(read_some(reader()), numbers(10, 12));
}

// Prevents: a reader that is slow stops the server, or gets parts of lines.
TEST_F(PipeLogTest, AFullPipeLosesWholeLines) {
  Log log(path_, "log");
  const Fd slow = reader();
  std::mt19937 random(1);
  std::string all;
  for (int i = 0; i < 3000; ++i) {
    // Longer ones than PIPE_BUF may be taken in parts.
    log.write(std::to_string(i) + std::string(random() % 20'000, 'x') + ".\n");
    if (random() % 8 == 0) all += read_some(slow);
  }
  for (std::string more = "."; !more.empty(); all += more) {
    more = read_some(slow);
    if (more.empty()) break;
  }
  std::istringstream lines(all);
  int last = -1;
  int found = 0;
  for (std::string line; std::getline(lines, line) && !lines.eof(); ++found) {
    const int number = std::stoi(line);
    EXPECT_GT(number, last);
    const std::size_t digits = std::to_string(number).size();
    EXPECT_EQ(line.find_first_not_of('x', digits), line.size() - 1) << "two lines in one";
    EXPECT_EQ(line.back(), '.') << number;
    last = number;
  }
  EXPECT_GT(found, 100);
  EXPECT_LT(found, 3000) << "the pipe was full";
}

}  // namespace
}  // namespace sluice::base
