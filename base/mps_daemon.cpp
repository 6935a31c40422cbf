#include "base/mps_daemon.hpp"

#include <fcntl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/child.hpp"
#include "base/error.hpp"
#include "base/processes.hpp"
#include "base/session.hpp"

namespace sluice::base {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kLimit = 10s;
constexpr const char* kProgram = "nvidia-cuda-mps-control";
constexpr const char* kFolder = "mps-";

/// Whether `condition` becomes true within the limit.
template <class Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

/// Removes the pipes that killed runs have left.
void remove_stale_pipes() {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(runtime_dir(), ignored)) {
    const std::string name = entry.path().filename();
    if (name.rfind(kFolder, 0) != 0) continue;
    const char* digits = name.data() + std::strlen(kFolder);
    const char* end = name.data() + name.size();
    pid_t owner = 0;
    if (std::from_chars(digits, end, owner).ptr != end) continue;  // of a session with such a name
    if (owner > 0 && ::kill(owner, 0) != 0 && errno == ESRCH) {
      fs::remove_all(entry.path(), ignored);
    }
  }
}

/// What CUDA_VISIBLE_DEVICES must be for a client, if ours has indices: the daemon sees only the
/// GPUs that we see, and its clients count those. Empty if the clients can keep what we have.
std::string visible_devices_of_clients() {
  const char* ours = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string list = ours == nullptr ? "" : ours;
  if (list.empty() || list.find_first_not_of("0123456789,") != std::string::npos) return {};
  std::string clients = "0";
  const auto commas = std::count(list.begin(), list.end(), ',');
  for (int index = 1; index <= commas; ++index) clients += ',' + std::to_string(index);
  return clients;
}

std::string last_line(const std::string& file) {
  std::ifstream in(file);
  std::string last;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace

std::string find_mps_control() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path program = fs::absolute(fs::path(folder) / kProgram);
    std::error_code ignored;
    if (fs::is_regular_file(program, ignored) && access(program.c_str(), X_OK) == 0) return program;
  }
  throw UsageError(std::string("MPS is not available: ") + kProgram +
                   ", a part of the NVIDIA driver, is not in PATH");
}

bool is_mps_daemon(pid_t pid) {
  // The kernel cuts names of processes at 15 characters.
  static const std::string name = std::string(kProgram).substr(0, 15);
  return short_name(pid) == name &&
         read_proc(pid, "cmdline", 4096).find(kProgram) != std::string::npos;
}

std::vector<std::string> mps_places(const std::string& pipes, const std::string& logs) {
  return {"CUDA_MPS_PIPE_DIRECTORY=" + pipes, "CUDA_MPS_LOG_DIRECTORY=" + logs};
}

bool accepts_mps_clients(const std::string& pipes) { return fs::exists(pipes + "/control"); }

void wait_for_mps(const std::string& pipes, const std::function<bool()>& ended,
                  const std::function<std::string()>& last_line) {
  bool over = false;
  const bool ready = eventually([&] {
    over = ended();
    return over || accepts_mps_clients(pipes);
  });
  if (ready && !over) return;
  const std::string said = last_line();
  throw RunError(std::string("the MPS daemon ") +
                 (over ? "ended at once" : "does not accept clients after 10 s") +
                 (said.empty() ? "" : ": " + said));
}

MpsDaemon::MpsDaemon(const std::string& program, const std::string& log_folder)
    : pipes_(runtime_dir() + "/" + kFolder + std::to_string(getpid())),
      log_folder_(fs::absolute(log_folder)) {
  {
    const Fd lock = lock_runtime_dir();
    remove_stale_pipes();
    fs::create_directory(pipes_);
  }
  fs::create_directories(log_folder_);
  const Fd output(
      open((log_folder_ + "/control.out").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (output.get() < 0) throw RunError(log_folder_ + "/control.out: " + std::strerror(errno));
  ChildOptions options;
  options.args = {program, "-f"};
  options.environment = mps_places(pipes_, log_folder_);
  options.stdout_fd = output.get();
  options.stderr_fd = output.get();
  // SIGTERM also ends the server of the daemon. SIGKILL does not always.
  options.signal_when_we_die = SIGTERM;
  options.own_group = true;
  pid_ = start_child(options);
  try {
    wait_until_ready();
  } catch (...) {
    stop();
    throw;
  }
}

MpsDaemon::~MpsDaemon() { stop(); }

void MpsDaemon::wait_until_ready() {
  const auto ended = [this] {
    if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) != 0) pid_ = -1;
    return pid_ < 0;
  };
  wait_for_mps(pipes_, ended, [this] { return last_line(log_folder_ + "/control.out"); });
}

void MpsDaemon::stop() noexcept {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    const auto gone = [this] { return waitpid(pid_, nullptr, WNOHANG) != 0; };
    if (!eventually(gone)) {
      ::kill(-pid_, SIGKILL);  // also its server, which is in the same process group
      eventually(gone);
    }
    pid_ = -1;
  }
  std::error_code ignored;
  fs::remove_all(pipes_, ignored);
  remove_runtime_dir_if_empty();
}

std::vector<std::string> MpsDaemon::environment(bool below_normal) const {
  std::vector<std::string> variables = mps_places(pipes_, log_folder_);
  variables.push_back(std::string("CUDA_MPS_CLIENT_PRIORITY=") + (below_normal ? "1" : "0"));
  if (const std::string devices = visible_devices_of_clients(); !devices.empty()) {
    variables.push_back("CUDA_VISIBLE_DEVICES=" + devices);
  }
  return variables;
}

}  // namespace sluice::base
