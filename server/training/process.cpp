#include "server/training/process.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/child.hpp"

namespace sluice::server::training {

Process::Process(const std::vector<std::string>& args,
                 const std::vector<std::string>& environment) {
  base::Pipe pipe;
  base::ChildOptions options;
  options.args = args;
  options.environment = environment;
  options.stdout_fd = pipe.write.get();
  options.signal_when_we_die = SIGKILL;
  // Ctrl-C in a terminal is for the server, which ends its trainer in order.
  options.own_group = true;
  fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
  pid_ = base::start_child(options);
  output_ = std::move(pipe.read);
}

Process::~Process() {
  if (reaped_) return;
  signal(SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

void Process::read_lines(const Line& line) {
  constexpr std::size_t kLongest = 4096;  // A program that prints no newline costs no memory.
  // A program that prints all the time must not keep its reader.
  constexpr int kMostChunks = 16;
  std::array<char, 4096> chunk{};
  for (int i = 0; i < kMostChunks && output_; ++i) {
    const ssize_t got = read(output_.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return output_.reset();
    for (const char c : std::string_view(chunk.data(), static_cast<std::size_t>(got))) {
      if (c != '\n') rest_ += c;
      if (c == '\n' || rest_.size() == kLongest) line(std::exchange(rest_, {}));
    }
  }
}

std::optional<int> Process::ended(const Line& line) {
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  reaped_ = true;
  // Helpers of the program, such as loaders of data, have nothing to work for.
  kill(-pid_, SIGKILL);
  read_lines(line);
  if (!rest_.empty()) line(std::exchange(rest_, {}));
  return status;
}

void Process::signal(int number) const {
  if (!reaped_) kill(-pid_, number);
}

}  // namespace sluice::server::training
