#include "tests/support/process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "base/child.hpp"

namespace sluice::test {
namespace {

using Clock = std::chrono::steady_clock;

/// Appends the available bytes. False at the end of the stream.
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

/// Both ends of each stream, the program's and the test's.
struct Process::Streams {
  base::Pipe in;
  base::Pipe out;
  base::Pipe err;

  explicit Streams(const ProcessOptions& options) {
    replace(out, options.out);
    replace(err, options.err);
  }
  static void replace(base::Pipe& pipe, const std::string& file) {
    if (file.empty()) return;
    pipe.read.reset();
    pipe.write = base::Fd(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  }
};

Process::Process(std::vector<std::string> command, const ProcessOptions& options)
    : Process(std::move(command), options, Streams(options)) {}

Process::Process(std::vector<std::string> command, const ProcessOptions& options, Streams streams)
    : Child(base::start_child({.args = std::move(command),
                               .environment = options.environment,
                               .folder = options.folder,
                               .stdin_fd = streams.in.read.get(),
                               .stdout_fd = streams.out.write.get(),
                               .stderr_fd = streams.err.write.get(),
                               .signal_when_we_die = options.signal_when_we_die})),
      in_(std::move(streams.in.write)),
      out_(std::move(streams.out.read)),
      err_(std::move(streams.err.read)) {}

void Process::write_line(const std::string& line) const {
  const std::string text = line + "\n";
  if (write(in_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw std::runtime_error("the program does not take: " + line);
  }
}

std::string Process::read_line() {
  const auto deadline = Clock::now() + kProgramPatience;
  std::size_t end = 0;
  while ((end = unread_.find('\n')) == std::string::npos) {
    if (!wait_readable(out_.get(), deadline) || !read_some(out_.get(), unread_)) return {};
  }
  std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  return line;
}

base::Captured Process::finish() {
  base::Captured result;
  result.out = std::move(unread_);
  in_.reset();
  const auto deadline = Clock::now() + kProgramPatience;
  std::array<pollfd, 2> waits{{{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}}};
  const std::array<std::string*, 2> texts{&result.out, &result.err};
  while (std::any_of(waits.begin(), waits.end(), [](const pollfd& w) { return w.fd >= 0; })) {
    if (Clock::now() > deadline) {
      ADD_FAILURE() << "still running, or its streams are still held open: killed";
      signal(SIGKILL);
      break;
    }
    poll(waits.data(), waits.size(), 100);
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].revents != 0 && !read_some(waits[i].fd, *texts[i])) waits[i].fd = -1;
    }
  }
  result.exit_code = wait();
  return result;
}

}  // namespace sluice::test
