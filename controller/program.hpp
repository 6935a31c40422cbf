#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "controller/daemon.hpp"
#include "controller/exposition.hpp"
#include "controller/slice_check.hpp"

/// What `sluice controller` and `sluice node` have in common.
namespace sluice::controller {

struct ProgramOptions {
  double max_hold_seconds = 10;
  std::string log_level = "info";
  std::vector<std::string> metrics;
  CheckSlices check_slices = CheckSlices::kAuto;

  [[nodiscard]] std::uint64_t max_hold_ns() const {
    return static_cast<std::uint64_t>(max_hold_seconds * 1e9);
  }
};

/// --log-level, --max-hold, --metrics and --check-slices.
void add_program_options(CLI::App& app, ProgramOptions& options);

/// Serves the metrics and runs the daemon until its end. `ready`: the line that says that clients
/// may attach, to which the addresses of the metrics are added.
void serve(Daemon& daemon, const ProgramOptions& options, const std::string& session,
           const std::string& ready, Show show);

/// Starts the log, runs `body` and ends the process. An exception becomes one line after `name`.
[[noreturn]] void run_program(const std::string& name, const ProgramOptions& options,
                              const std::function<void()>& body);

}  // namespace sluice::controller
