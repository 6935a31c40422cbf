// Where the interposer's lines go, and where they must not. Each case is a child with a descriptor
// 2 of its own, which gets a warning because the session has no controller.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <string>

#include "base/fd.hpp"
#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {
namespace {

/// How a case gets its descriptor 2: before the first driver call, or after it.
enum class When { kBefore, kAfter };

class StandardError : public Session {
 protected:
  /// A child that is worth a warning. `open` runs in it and returns what gets the number 2, with
  /// these flags; so does `look` at the end, which says whether all is well.
  static void run(
      When when, const std::function<int()>& open, int flags = 0,
      const std::function<bool()>& look = [] { return true; }) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      if (when == When::kAfter) ::cuCtxSynchronize();
      if (dup3(open(), STDERR_FILENO, flags) != STDERR_FILENO) _exit(2);
      launch();
      _exit(look() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  /// What a file has got that was opened so.
  std::string in_file(When when, int opened, int flags = 0) {
    const std::string path = own_session_.file("file" + std::to_string(++files_));
    run(
        when, [&] { return open(path.c_str(), opened | O_CREAT, 0600); }, flags);
    return sluice::test::read_file(path);
  }
  /// What has come to the other end.
  static std::string all_of(int fd) {
    std::string text(4096, '\0');
    const ssize_t got = read(fd, text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
  }
  /// Whether a background job of a terminal with `stty tostop` goes on after a warning.
  static bool goes_on_in_background(const char* terminal) {
    setsid();
    const int tty = open(terminal, O_RDWR);  // the terminal of this session from now on
    termios settings{};
    tcgetattr(tty, &settings);
    settings.c_lflag |= TOSTOP;
    tcsetattr(tty, TCSANOW, &settings);
    const pid_t job = fork();
    if (job == 0) {
      setpgid(0, 0);
      dup2(tty, STDERR_FILENO);
      launch();
      _exit(0);
    }
    int status = 0;
    waitpid(job, &status, WUNTRACED);
    if (WIFSTOPPED(status)) kill(job, SIGKILL);
    return WIFEXITED(status);
  }
  static std::array<int, 2> socket_pair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
    return ends;
  }

 private:
  int files_ = 0;
};

bool warned(const std::string& text) { return text.find("no controller") != std::string::npos; }

TEST_F(StandardError, GetsWarnings) {
  choose("gate");
  EXPECT_TRUE(warned(in_file(When::kBefore, O_WRONLY))) << "as a shell opens it";
  EXPECT_TRUE(warned(in_file(When::kBefore, O_WRONLY | O_APPEND)));
  EXPECT_TRUE(warned(in_file(When::kAfter, O_WRONLY | O_APPEND))) << "a log";
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_NONBLOCK), 0);
  run(When::kBefore, [&] { return ends[1]; });
  EXPECT_TRUE(warned(all_of(ends[0])));
  ends = socket_pair();
  run(When::kBefore, [&] { return ends[1]; });
  EXPECT_TRUE(warned(all_of(ends[0]))) << "as below sshd";
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
  ASSERT_EQ(grantpt(terminal) + unlockpt(terminal), 0);
  const int kept = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  run(When::kAfter, [&] { return kept; });
  EXPECT_TRUE(warned(all_of(terminal)));
}

// Prevents: a daemon closes its descriptor 2, the next file that it opens has the number, and gets
// our warnings. Seen to fail when every file at the number was written to.
TEST_F(StandardError, OfAProgramThatHasNoneIsItsOwnFile) {
  choose("gate");
  EXPECT_EQ(in_file(When::kBefore, O_RDWR), "") << "a database";
  EXPECT_EQ(in_file(When::kBefore, O_RDWR | O_APPEND), "");
  EXPECT_EQ(in_file(When::kBefore, O_WRONLY, O_CLOEXEC), "");
  EXPECT_EQ(in_file(When::kAfter, O_WRONLY), "") << "results";
  std::array<int, 2> own{};
  run(
      When::kBefore,
      [&] {
        own = socket_pair();
        return own[1];
      },
      0, [&] { return all_of(own[0]).empty(); });
}

// A file that is open for reading too, as a temporary file of Python, is a standard error if it was
// that of `sluice exec`. Seen to fail without the look at the variable, and without the inode.
TEST_F(StandardError, MayBeOpenForReadingIfExecNamesIt) {
  choose("gate");
  const auto in_named = [&](const char* name, When when) {
    const std::string path = own_session_.file(name);
    run(when, [&] {
      const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
      struct stat about {};
      if (fstat(file, &about) != 0) _exit(3);
      const bool other = std::string(name) == "database";
      const auto inode = std::to_string(about.st_ino + (other ? 1 : 0));
      setenv("SLUICE_STDERR", (std::to_string(about.st_dev) + ":" + inode).c_str(), 1);
      return file;
    });
    return sluice::test::read_file(path);
  };
  EXPECT_TRUE(warned(in_named("temporary", When::kBefore)));
  EXPECT_EQ(in_named("database", When::kBefore), "");
  EXPECT_EQ(in_named("later", When::kAfter), "") << "the inode of a deleted file comes back";
}

// Prevents: a warning ends a program whose file of errors has its full size (SIGXFSZ).
TEST_F(StandardError, ThatIsFullEndsNobody) {
  choose("gate");
  run(When::kBefore, [this] {
    const rlimit none{0, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &none);
    return open(own_session_.file("full").c_str(), O_WRONLY | O_CREAT, 0600);
  });
}

// Prevents: a warning stops a program that runs in the background and writes nothing itself
// (SIGTTOU).
TEST_F(StandardError, OfABackgroundJobStopsNobody) {
  choose("gate");
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_EQ(grantpt(terminal) + unlockpt(terminal), 0);
  const std::string name = ptsname(terminal);
  const pid_t child = fork();
  if (child == 0) _exit(goes_on_in_background(name.c_str()) ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// A connection to a server is the program's, unless systemd says that it is the journal.
TEST_F(StandardError, IsTheJournalOnlyIfSystemdSaysSo) {
  choose("gate");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  own_session_.file("server").copy(address.sun_path, sizeof(address.sun_path) - 1);
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  const base::Fd server(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(server.get(), at, sizeof(address)), 0);
  ASSERT_EQ(listen(server.get(), 2), 0);
  for (const bool journal : {false, true}) {
    run(When::kBefore, [&] {
      const int connection = socket(AF_UNIX, SOCK_STREAM, 0);
      struct stat about {};
      if (connect(connection, at, sizeof(address)) != 0 || fstat(connection, &about) != 0) _exit(3);
      const std::string stream = std::to_string(about.st_dev) + ":" + std::to_string(about.st_ino);
      if (journal) setenv("JOURNAL_STREAM", stream.c_str(), 1);
      return connection;
    });
    const base::Fd accepted(accept4(server.get(), nullptr, nullptr, SOCK_NONBLOCK));
    EXPECT_EQ(warned(all_of(accepted.get())), journal);
  }
}

}  // namespace
}  // namespace sluice::intercept::test
