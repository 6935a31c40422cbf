#include "tests/bench/session.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "shm/messages.hpp"
#include "shm/session.hpp"

namespace sluice::bench {
namespace {

template <class Condition>
void wait_until(const char* what, Condition condition) {
  for (int i = 0; i < 10'000; ++i) {
    if (condition()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw std::runtime_error(std::string("waited in vain for ") + what);
}

}  // namespace

pid_t spawn(const std::vector<std::string>& command, const std::vector<std::string>& variables,
            bool quiet) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> environment;
  for (const std::string& variable : variables) {
    environment.push_back(const_cast<char*>(variable.c_str()));
  }
  for (char** old = environ; *old != nullptr; ++old) environment.push_back(*old);
  environment.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (quiet) {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  }
  pid_t child = -1;
  const int error =
      posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw std::runtime_error("cannot start " + command.front());
  }
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Session::Session()
    : name_("bench-" + std::to_string(getpid())),
      directory_(std::filesystem::temp_directory_path() / ("sluice-" + name_)) {
  std::filesystem::create_directory(directory_);
  setenv("XDG_RUNTIME_DIR", directory_.c_str(), 1);
  setenv("SLUICE_SESSION", name_.c_str(), 1);
  controller_ =
      spawn({SLUICE_CONTROLLER_PROGRAM, "--session", name_, "--log-level", "error"}, {}, true);
  wait_until("the controller", [this] {
    const int fd = shm::connect_controller(shm::socket_path(name_).c_str());
    if (fd >= 0) close(fd);
    return fd >= 0;
  });
}

Session::~Session() {
  kill(controller_, SIGTERM);
  wait_for(controller_);
  std::filesystem::remove_all(directory_);
}

Client::Client(const std::string& session, int priority)
    : mapping_(shm::BoardMapping::attach(session)),
      connection_(shm::connect_controller(shm::socket_path(session).c_str())) {
  shm::Request request;
  request.priority = static_cast<std::uint32_t>(priority);
  request.device_uuid.fill(1);
  shm::Reply reply;
  if (shm::ask(connection_, request, reply, 10'000) != 0 || reply.slot < 0) {
    throw std::runtime_error("the controller gives no slot");
  }
  slot_ = reply.slot;
  board().slots[static_cast<std::size_t>(slot_)].alive.take();
  shm::BoardView view(board());
  shm::go_live(view, slot_);
}

Client::~Client() {
  shm::BoardView view(board());
  shm::leave(view, slot_);
  close(connection_);
}

void Client::begin() {
  shm::BoardView view(board());
  shm::begin_job(view, slot_);
}

void Client::end() {
  shm::BoardView view(board());
  shm::end_job(view, slot_);
}

shm::Slot& Client::slot_of(pid_t pid) const {
  shm::Slot* found = nullptr;
  wait_until("a client to attach", [&] {
    for (shm::Slot& slot : board().slots) {
      const auto state = shm::SlotInfo::unpack(slot.info.load()).state;
      if (state == shm::SlotState::kLive && slot.pid.load() == static_cast<std::uint32_t>(pid)) {
        found = &slot;
      }
    }
    return found != nullptr;
  });
  return *found;
}

}  // namespace sluice::bench
