#include "tests/tools/command.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "shm/mapping.hpp"
#include "shm/session.hpp"

namespace sluice::tools::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Generous: a loaded two-core machine must not fail a test.
constexpr auto kPatience = 30s;

struct Pipe {
  int read = -1;
  int write = -1;
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) == 0) {
      read = ends[0];
      write = ends[1];
    }
  }
};

/// Appends what there is; false at the end of the stream.
bool read_some(int fd, std::string& text) {
  std::array<char, 4096> chunk{};
  const ssize_t got = read(fd, chunk.data(), chunk.size());
  if (got > 0) text.append(chunk.data(), static_cast<std::size_t>(got));
  return got > 0;
}

bool wait_readable(int fd, Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  pollfd wait{fd, POLLIN, 0};
  return left > 0ms && poll(&wait, 1, static_cast<int>(left.count())) > 0;
}

}  // namespace

Process::Process(const std::vector<std::string>& command) {
  Pipe in;
  Pipe out;
  Pipe err;
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(in.read, STDIN_FILENO);
    dup2(out.write, STDOUT_FILENO);
    dup2(err.write, STDERR_FILENO);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  close(in.read);
  close(out.write);
  close(err.write);
  in_ = in.write;
  out_ = out.read;
  err_ = err.read;
}

Process::~Process() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    kill(pid_, SIGCONT);
    waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {in_, out_, err_}) {
    if (fd >= 0) close(fd);
  }
}

void Process::write_line(const std::string& line) const {
  const std::string text = line + "\n";
  EXPECT_EQ(write(in_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

std::string Process::read_line() {
  const auto deadline = Clock::now() + kPatience;
  std::size_t end = 0;
  while ((end = unread_.find('\n')) == std::string::npos) {
    if (!wait_readable(out_, deadline) || !read_some(out_, unread_)) return {};
  }
  std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  return line;
}

Result Process::finish() {
  Result result;
  result.out = std::move(unread_);
  close(in_);
  in_ = -1;
  const auto deadline = Clock::now() + kPatience;
  std::array<pollfd, 2> waits{{{out_, POLLIN, 0}, {err_, POLLIN, 0}}};
  std::array<std::string*, 2> texts{&result.out, &result.err};
  while (std::any_of(waits.begin(), waits.end(), [](const pollfd& w) { return w.fd >= 0; })) {
    if (Clock::now() > deadline) {
      ADD_FAILURE() << "still running, or its streams are still held open: killed";
      kill(pid_, SIGKILL);
      break;
    }
    poll(waits.data(), waits.size(), 100);
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].revents != 0 && !read_some(waits[i].fd, *texts[i])) waits[i].fd = -1;
    }
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::vector<std::string> sluice_command(std::vector<std::string> args) {
  args.insert(args.begin(), SLUICE_TEST_PROGRAM);
  return args;
}

Result sluice(std::vector<std::string> args) {
  return Process(sluice_command(std::move(args))).finish();
}

int lines_in(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

void SessionTest::SetUp() {
  static int count = 0;
  session_ = "test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
  std::string pattern = "/tmp/sluice-tools-test-XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
  setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  setenv("SLUICE_SESSION", session_.c_str(), 1);
  for (const char* name :
       {"SLUICE_PRIORITY", "SLUICE_POLICY", "SLUICE_LOG", "LD_PRELOAD", "LD_LIBRARY_PATH"}) {
    unsetenv(name);
  }
}

void SessionTest::TearDown() {
  namespace fs = std::filesystem;
  const auto deadline = Clock::now() + kPatience;
  const auto left = [&] { return fs::exists(board_file()) || !fs::is_empty(folder_); };
  while (left() && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(fs::exists(board_file())) << "the session left its board behind";
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    ADD_FAILURE() << "the session left " << entry.path() << " behind";
  }
  fs::remove_all(folder_);
}

std::string SessionTest::board_file() const { return "/dev/shm/" + shm::board_name(session_); }

pid_t SessionTest::controller_pid() const {
  try {
    const auto mapping = shm::BoardMapping::inspect(session_);
    return static_cast<pid_t>(mapping.board().controller_pid.load());
  } catch (const shm::BoardError&) {
    return 0;
  }
}

}  // namespace sluice::tools::test
