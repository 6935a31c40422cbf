#include "support.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "shm/policy.hpp"
#include "shm/session.hpp"

namespace sluice::controller::test {

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

Child::Child(const std::vector<std::string>& command, const std::string& log) {
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) std::abort();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  if (!log.empty()) {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
  }
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int error = posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  to_ = base::Fd(in[1]);
  from_ = base::Fd(out[0]);
  if (error != 0) throw std::runtime_error("cannot start " + command.front());
}

Child::~Child() {
  if (!status_) {
    kill(pid_, SIGKILL);
    kill(pid_, SIGCONT);
    wait();
  }
}

void Child::signal(int number) const { kill(pid_, number); }

void Child::stop() const {
  signal(SIGSTOP);
  siginfo_t how{};
  waitid(P_PID, static_cast<id_t>(pid_), &how, WSTOPPED | WEXITED | WNOWAIT);
}

int Child::wait() {
  if (status_) return *status_;
  int status = 0;
  if (!eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return *status_;
}

void Child::write_line(const std::string& line) const {
  const std::string text = line + "\n";
  if (write(to_.get(), text.data(), text.size()) < 0) throw std::runtime_error("child is gone");
}

std::string Child::read_line() const {
  std::string line;
  for (char c = 0; c != '\n';) {
    pollfd ready{from_.get(), POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(kPatience.count())) != 1) return {};
    if (read(from_.get(), &c, 1) != 1) return {};
    if (c != '\n') line += c;
  }
  return line;
}

void ControllerTest::SetUp() {
  static int count = 0;
  session_ = prefix_ + "-" + std::to_string(getpid()) + "-" + std::to_string(++count);
  directory_ = std::filesystem::temp_directory_path() / ("sluice-" + session_);
  std::filesystem::create_directory(directory_);
  if (const char* old = std::getenv("XDG_RUNTIME_DIR")) old_runtime_dir_ = old;
  setenv("XDG_RUNTIME_DIR", directory_.c_str(), 1);
}

void ControllerTest::TearDown() {
  EXPECT_FALSE(std::filesystem::exists(board_file())) << "the board was left behind";
  EXPECT_FALSE(std::filesystem::exists(base::runtime_dir()))
      << "the runtime folder was left behind";
  if (HasFailure()) std::fprintf(stderr, "--- log of the controller\n%s---\n", log().c_str());
  std::filesystem::remove(board_file());
  std::filesystem::remove_all(directory_);
  if (old_runtime_dir_.empty()) {
    unsetenv("XDG_RUNTIME_DIR");
  } else {
    setenv("XDG_RUNTIME_DIR", old_runtime_dir_.c_str(), 1);
  }
}

std::string ControllerTest::board_file() const { return "/dev/shm/" + shm::board_name(session_); }

std::string ControllerTest::log() const {
  std::ifstream file(log_path());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::unique_ptr<Child> ControllerTest::launch_controller(const std::vector<std::string>& more) {
  std::vector<std::string> command{SLUICE_CONTROLLER_PROGRAM, "--session", session_, "--log-level",
                                   "debug"};
  command.insert(command.end(), more.begin(), more.end());
  return std::make_unique<Child>(command, log_path());
}

std::unique_ptr<Child> ControllerTest::start_controller(const std::vector<std::string>& more) {
  auto controller = launch_controller(more);
  const std::string ready =
      "ready: session=" + session_ + " pid=" + std::to_string(controller->pid()) + " ";
  EXPECT_TRUE(eventually([&] { return log().find(ready) != std::string::npos; })) << log();
  return controller;
}

Client::Client(const std::string& session, int priority, int device)
    : process_(std::make_unique<Child>(std::vector<std::string>{
          SLUICE_FAKE_CLIENT_PROGRAM, session, std::to_string(priority), std::to_string(device)})) {
  greeting_ = process_->read_line();
  std::istringstream words(greeting_);
  std::string verdict;
  words >> verdict;
  if (verdict == "attached") words >> slot_ >> generation_ >> board_id_;
}

void Client::order(const std::string& words) {
  process_->write_line(words);
  EXPECT_EQ(process_->read_line(), "ok") << words;
}

void stop_with_fresh_heartbeat(const Child& controller, const std::string& session) {
  controller.stop();  // or it would write another heartbeat
  shm::BoardMapping::attach(session).board().heartbeat_ns.store(
      std::numeric_limits<std::uint64_t>::max());
}

base::Fd connect_to(const std::string& session) {
  base::Fd fd(shm::connect_controller(shm::socket_path(session).c_str()));
  EXPECT_TRUE(fd) << "cannot connect";
  return fd;
}

shm::Request good_request(int priority, int device) {
  shm::Request request;
  request.priority = static_cast<std::uint32_t>(priority);
  request.policy = shm::kDefaultPolicy.pack();
  request.device_uuid.fill(static_cast<std::uint8_t>(device));
  return request;
}

shm::Reply ask_controller(int fd, const shm::Request& request) {
  shm::Reply reply;
  EXPECT_EQ(shm::ask(fd, request, reply, static_cast<int>(kPatience.count())), 0);
  return reply;
}

}  // namespace sluice::controller::test
