#include "tools/exec/controller.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "base/command_line.hpp"
#include "base/container.hpp"
#include "base/daemon.hpp"
#include "base/node_service.hpp"
#include "shm/messages.hpp"
#include "shm/no_controller.hpp"
#include "shm/session.hpp"

namespace sluice::tools {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kStartLimit = 5s;
constexpr int kAnswerLimitMs = 1000;
/// How long the first controller of a session may take to answer after a second one was refused.
constexpr auto kOtherControllerLimit = 1s;

struct LeaseResult {
  bool answered = false;
  int error = 0;          ///< errno of the attempt if nobody answered.
  std::string complaint;  ///< The reason of a controller that refused.
};

LeaseResult take_lease(const std::string& socket) {
  LeaseResult result;
  const int fd = shm::connect_patiently(socket.c_str(), kAnswerLimitMs);
  if (fd < 0) {
    result.error = -fd;
    return result;
  }
  shm::Request request;
  request.kind = shm::RequestKind::kLease;
  shm::Reply reply;
  result.error = -shm::ask(fd, request, reply, kAnswerLimitMs);
  // The lease belongs to the process, not to the connection.
  close(fd);
  if (result.error != 0) return result;
  result.answered = true;
  if (reply.status != shm::ReplyStatus::kOk) result.complaint = reply.text.data();
  return result;
}

bool nobody_listens(int error) { return error == ENOENT || error == ECONNREFUSED; }

/// A controller that ends hangs up, and nobody listens a moment later.
bool may_be_ending(int error) { return error == EPIPE || error == ECONNRESET; }

std::string complaint_of(const base::Daemon& daemon) {
  const std::string words = base::printed_error("sluice controller", daemon.last_words());
  if (!words.empty()) return words;
  rlimit files{};
  const bool limited = getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur != RLIM_INFINITY;
  return limited ? "it ended without a message (ulimit -f limits its files to " +
                       std::to_string(files.rlim_cur) + " bytes)"
                 : "it ended without a message";
}

/// Starts a controller and takes the lease as soon as the controller answers. Throws
/// base::RunError. `started` becomes whether it is this controller that answers.
LeaseResult start_and_take_lease(const base::Install& install, const std::string& session,
                                 const std::string& log_level, bool log_to_stderr, bool& started) {
  base::DaemonOptions options;
  options.args = {install.subcommand("controller"),
                  "--session",
                  session,
                  "--exit-when-idle",
                  "--log-level",
                  log_level};
  options.log_to_stderr = log_to_stderr;
  const base::Daemon daemon(options);
  Clock::time_point deadline = Clock::now() + kStartLimit;
  bool ended = false;
  for (;;) {
    LeaseResult result = take_lease(shm::socket_path(session));
    if (result.answered) {
      started = !ended;
      return result;
    }
    if (!ended && daemon.ended()) {
      // Two `sluice exec` started controllers at the same moment. The other controller is about to
      // answer.
      ended = true;
      deadline = Clock::now() + kOtherControllerLimit;
    }
    if (Clock::now() > deadline) {
      throw base::RunError("could not be started: " +
                           (ended ? complaint_of(daemon) : "it does not answer"));
    }
    std::this_thread::sleep_for(2ms);
  }
}

/// What is wrong with the session's controller; empty if nothing is. `started` becomes whether it
/// was started here.
std::string fault_of_controller(const base::Install& install, const std::string& session,
                                const std::string& log_level, bool log_to_stderr, bool& started) {
  try {
    LeaseResult result = take_lease(shm::socket_path(session));
    const Clock::time_point deadline = Clock::now() + kOtherControllerLimit;
    while (may_be_ending(result.error) && Clock::now() < deadline) {
      std::this_thread::sleep_for(2ms);
      result = take_lease(shm::socket_path(session));
    }
    const bool is_node = session == base::kNodeSession;
    if (is_node && base::find_node_service() == base::NodeService::kUntrusted) {
      result.error = EPERM;
      result.answered = false;
    }
    if (!result.answered && nobody_listens(result.error) && !is_node) {
      result = start_and_take_lease(install, session, log_level, log_to_stderr, started);
    }
    if (!result.answered) return shm::why_no_controller(result.error, session);
    return result.complaint.empty() ? std::string() : "the controller refuses: " + result.complaint;
  } catch (const std::exception& error) {
    return std::string("the controller ") + error.what();
  }
}

}  // namespace

std::string ensure_controller(const base::Install& install, const std::string& session,
                              const std::string& log_level, bool log_to_stderr) {
  bool started = false;
  const std::string fault =
      fault_of_controller(install, session, log_level, log_to_stderr, started);
  if (!fault.empty()) return "session " + session + ": " + fault + "; the program runs ungated";
  const std::string apart = started ? base::separation() : std::string();
  if (apart.empty()) return {};
  return "session " + session + " is only of this container (" + apart +
         "): it holds no program outside, and none outside holds it; sluice cdi, or --ipc=host "
         "--pid=host, shares the session";
}

}  // namespace sluice::tools
