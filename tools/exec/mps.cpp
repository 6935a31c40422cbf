#include "tools/exec/mps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/gpus.hpp"
#include "base/mps_daemon.hpp"
#include "base/mps_join.hpp"
#include "base/mps_session.hpp"
#include "shm/mapping.hpp"

namespace sluice::tools {
namespace {

constexpr const char* kPriority = "CUDA_MPS_CLIENT_PRIORITY";
constexpr const char* kPercentage = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
constexpr std::chrono::milliseconds kLook{250};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool is_best_effort(const MpsOptions& options) { return options.priority == 0; }

/// The variables of a client of the session's own daemon are of the program that started this one.
bool is_nested(const MpsOptions& options) {
  return variable(base::kMpsPipes).starts_with(base::MpsFolder(options.session).path() + "/");
}

int percent_of(const Width& width, const MpsOptions& options, const base::Install& install) {
  if (width.kind == Width::Kind::kAuto) return 0;
  if (width.kind == Width::Kind::kAll) return 100;
  if (width.kind == Width::Kind::kPercent) return width.number;
  int sms = 0;
  try {
    sms = base::query_gpus(install, options.gpu.empty() ? "real" : options.gpu, options.session)
              .least_sms;
  } catch (const base::RunError& error) {
    throw base::UsageError(fmt::format(
        "--sms {}: the number of SMs of the GPU is unknown ({}); a percentage needs none",
        options.width, error.what()));
  }
  if (sms == 0) {
    throw base::UsageError(fmt::format(
        "--sms {}: the GPU does not say how many SMs it has; give a percentage", options.width));
  }
  if (width.number > sms) {
    throw base::UsageError(
        fmt::format("--sms {}: the GPU has {} SMs; allowed: {}", options.width, sms, kWidthForms));
  }
  return percent_of_sms(width.number, sms);
}

struct Choice {
  int percent = 100;
  std::string why;
};

/// Of `auto`. Two looks at the board: a program with one job after the other has no job that is
/// long.
Choice choose(const std::string& session) {
  try {
    const auto mapping = shm::BoardMapping::inspect(session);
    const auto look = [&] { return shm::take_snapshot(mapping.board(), base::monotonic_ns()); };
    const shm::Snapshot before = look();
    shm::Snapshot now = before;
    const shm::ClientSnapshot* busy = busy_above(before, now, 0);
    const bool anybody = std::any_of(before.clients.begin(), before.clients.end(),
                                     [](const auto& client) { return client.priority > 0; });
    if (busy == nullptr && anybody) {
      std::this_thread::sleep_for(kLook);
      now = look();
      busy = busy_above(before, now, 0);
    }
    if (busy != nullptr) {
      return {kHalf, fmt::format("pid {} ({}, priority {}) is never idle", busy->pid, busy->name,
                                 busy->priority)};
    }
    return {100, anybody ? "no program above it was busy for a minute" : "no program is above it"};
  } catch (const shm::BoardError&) {
    return {100, "no program is above it"};
  }
}

std::optional<base::Gpus> ask_gpus(const MpsOptions& options, const base::Install& install,
                                   std::string& fault) {
  try {
    return base::query_gpus(install, options.gpu.empty() ? "real" : options.gpu, options.session);
  } catch (const base::RunError& error) {
    fault = error.what();
    return std::nullopt;
  }
}

constexpr int kNoClient = -1;

/// Asks the driver in the environment of the program. Returns the SMs of which it tells; 0 if it
/// does not say; kNoClient if the program would not be a client of MPS. Throws base::UsageError if
/// MPS refuses the width, but not if there is no GPU: the program says so.
int sms_told(const MpsOptions& options, int percent, const base::Install& install) {
  std::string fault;
  std::string unlimited_fault;
  if (const auto gpus = ask_gpus(options, install, fault))
    return gpus->mps ? gpus->least_sms : kNoClient;
  unsetenv(kPercentage);
  if (ask_gpus(options, install, unlimited_fault)) {
    throw base::UsageError(fmt::format("--sms {}: MPS refuses {} % of the SMs: {}",
                                       options.width.empty() ? "auto" : options.width, percent,
                                       fault));
  }
  setenv(kPercentage, std::to_string(percent).c_str(), 1);
  return 0;
}

/// Sets the width of a best-effort program. Returns what it is.
std::string set_width(const MpsOptions& options, const MpsPlan& plan,
                      const base::Install& install) {
  if (plan.of_the_user) return fmt::format("{} is {}", kPercentage, variable(kPercentage));
  const Choice choice =
      plan.percent == 0 ? choose(options.session) : Choice{plan.percent, std::string()};
  std::string width = "it has all SMs";
  if (choice.percent == 100) {
    unsetenv(kPercentage);
  } else {
    setenv(kPercentage, std::to_string(choice.percent).c_str(), 1);
    const int sms = sms_told(options, choice.percent, install);
    if (sms == kNoClient) {
      return fmt::format(
          "it asks for {} % of the SMs, but the driver takes it for no client of MPS",
          choice.percent);
    }
    width = sms == 0 ? fmt::format("it has {} % of the SMs", choice.percent)
                     : fmt::format("it has {} SMs ({} %)", sms, choice.percent);
  }
  return choice.why.empty() ? width : width + ": " + choice.why + " (--sms auto)";
}

}  // namespace

MpsPlan plan_mps(const MpsOptions& options, const base::Install& install) {
  const std::string pipes = variable(base::kMpsPipes);
  if (!pipes.empty() && !is_nested(options)) {
    throw base::UsageError(fmt::format(
        "--mps: {}={} names another MPS daemon: unset it for the daemon of session {}, or leave "
        "--mps and SLUICE_MPS out to use that one",
        base::kMpsPipes, pipes, options.session));
  }
  MpsPlan plan;
  plan.control = base::find_mps_control();
  if (!is_best_effort(options)) return plan;
  plan.of_the_user = options.width.empty() && !is_nested(options) && !variable(kPercentage).empty();
  const std::string width = options.width.empty() ? "auto" : options.width;
  plan.percent = percent_of(parse_width(width).value_or(Width{}), options, install);
  return plan;
}

std::vector<std::string> use_mps(const MpsOptions& options, const MpsPlan& plan,
                                 const base::Install& install) {
  const bool nested = is_nested(options);
  const base::MpsJoin join = base::join_mps(install, options.session, plan.control);
  setenv(base::kMpsPipes, join.pipes.c_str(), 1);
  setenv(kPriority, is_best_effort(options) ? "1" : "0", 1);
  // A program that this one starts by `sluice exec` joins with a priority of its own.
  setenv("SLUICE_MPS", "1", 1);
  std::string line =
      fmt::format("MPS of session {}: a fatal fault of one of its programs ends the kernels of all",
                  options.session);
  if (is_best_effort(options)) {
    line += "; " + set_width(options, plan, install);
  } else if (nested) {
    unsetenv(kPercentage);
  }
  std::vector<std::string> lines{std::move(line)};
  if (!join.apart.empty()) {
    std::string pids;
    for (const pid_t pid : join.apart) pids += (pids.empty() ? "" : ", ") + std::to_string(pid);
    lines.push_back("the session's MPS daemon was killed, and this program has a new one: pid " +
                    pids +
                    " of the old one and this program take turns on the GPU; start them "
                    "again");
  }
  if (join.started) {
    if (std::string others = base::other_mps_daemons(options.session); !others.empty()) {
      lines.push_back(std::move(others));
    }
  }
  return lines;
}

}  // namespace sluice::tools
