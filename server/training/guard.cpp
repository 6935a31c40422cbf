#include "server/training/guard.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/child.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"

namespace sluice::server::training {

Guard::Guard(const std::filesystem::path& program) {
  if (program.empty()) return;
  std::array<int, 2> ends{};
  {
    const base::StandardFiles taken;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      throw base::RunError(fmt::format("no socket: {}", std::strerror(errno)));
    }
  }
  socket_ = base::Fd(ends[0]);
  const base::Fd theirs(ends[1]);
  base::ChildOptions options;
  options.args = {program.string()};
  options.stdin_fd = theirs.get();
  pid_ = base::start_child(options);
}

Guard::~Guard() {
  socket_.reset();
  int status = 0;
  while (pid_ > 0 && waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

std::string Guard::begin() {
  // No other server has this pid at this time.
  if (server_.empty()) server_ = fmt::format("{}.{}", getpid(), base::monotonic_ns());
  mark_ = fmt::format("SLUICE_TRAINER={}.{}", server_, ++jobs_);
  follow(0);
  return mark_;
}

void Guard::follow(pid_t group) const { send(fmt::format("{} {}", group, mark_)); }

void Guard::end() const { send("-"); }

void Guard::send(const std::string& packet) const {
  // Without a guard, training goes on.
  if (socket_)
    static_cast<void>(
        ::send(socket_.get(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

}  // namespace sluice::server::training
