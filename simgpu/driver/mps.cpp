#include "simgpu/driver/mps.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/processes.hpp"

namespace sluice::simgpu {
namespace {

using Variable = std::optional<std::string>;

Variable ours(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : Variable(value);
}

// What the daemon was started with; empty if the system does not show it.
Variable of_daemon(pid_t daemon, const std::string& name) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 20U;
  const std::string start = name + '=';
  const std::string environment = base::read_proc(daemon, "environ", kMostBytes);
  for (std::string_view rest = environment; !rest.empty();) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
    if (entry.starts_with(start)) return std::string(entry.substr(start.size()));
  }
  return std::nullopt;
}

// The greatest value for text that is no percentage.
double percentage(const Variable& text) {
  constexpr double kAll = 100;
  if (!text) return kAll;
  char* end = nullptr;
  const double value = std::strtod(text->c_str(), &end);
  return *end == 0 && value > 0 && value <= kAll ? value : kAll;
}

// Rounded up to TPCs, as on an H200: 50 % are 66 of 132 multiprocessors.
unsigned multiprocessors_of(double percentage) {
  constexpr unsigned kPerTpc = 2;
  const double tpcs = kMultiprocessors * percentage / 100 / kPerTpc;
  return kPerTpc * static_cast<unsigned>(std::ceil(tpcs));
}

// 0 is normal, and 1 below normal.
unsigned priority_of(const Variable& text) { return text == "1" ? 1 : 0; }

}  // namespace

CUresult Mps::join(Connection& connection) {
  const std::optional<MpsFolder> folder = MpsFolder::of_environment();
  const auto daemon = folder ? folder->daemon() : std::nullopt;
  if (joined_ || !daemon) return CUDA_SUCCESS;
  // The daemon's variables are the defaults of its clients. A client can lower its share only.
  constexpr const char* kShare = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
  constexpr const char* kPriority = "CUDA_MPS_CLIENT_PRIORITY";
  const unsigned multiprocessors = multiprocessors_of(
      std::min(percentage(ours(kShare)), percentage(of_daemon(daemon->pid, kShare))));
  const Variable priority = ours(kPriority);
  Request request;
  request.kind = RequestKind::kJoinMps;
  request.id = priority_of(priority ? priority : of_daemon(daemon->pid, kPriority));
  request.a = daemon->identity;
  request.b = multiprocessors;
  request.c = static_cast<std::uint64_t>(daemon->pid);
  if (!connection.request(request)) {
    return connection.lost() ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_MPS_SERVER_NOT_READY;
  }
  joined_ = true;
  multiprocessors_ = multiprocessors;
  visible_devices_ = of_daemon(daemon->pid, "CUDA_VISIBLE_DEVICES");
  return CUDA_SUCCESS;
}

}  // namespace sluice::simgpu
