#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/install.hpp"
#include "tools/exec/width.hpp"

/// `sluice exec --mps`: makes the program that this process becomes a client of the MPS daemon of
/// its session.
namespace sluice::tools {

struct MpsOptions {
  std::string session;
  std::string gpu;              ///< As --gpu; empty: the GPU that the program finds by itself.
  std::string width;            ///< As --sms; empty: not given.
  std::optional<int> priority;  ///< Nothing: the client gets the normal priority of MPS.
};

/// What is known before anything is started.
struct MpsPlan {
  std::string control;       ///< The path of nvidia-cuda-mps-control.
  int percent = 0;           ///< Of the SMs, for best effort; 0: auto.
  bool of_the_user = false;  ///< The user's own CUDA_MPS_ACTIVE_THREAD_PERCENTAGE stays in force.
};

/// Throws base::UsageError if this machine has no MPS, the environment names another daemon, or the
/// GPU has no such width.
[[nodiscard]] MpsPlan plan_mps(const MpsOptions& options, const base::Install& install);

/// Joins the daemon, and starts it if there is none, and sets the variables of a client in our
/// environment. Returns lines for the user: what MPS shares, and which width was chosen. Throws
/// base::RunError if the daemon cannot be started.
[[nodiscard]] std::vector<std::string> use_mps(const MpsOptions& options, const MpsPlan& plan,
                                               const base::Install& install);

}  // namespace sluice::tools
