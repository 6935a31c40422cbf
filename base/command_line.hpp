#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"

/// Command-line parsing that all our programs share.
namespace sluice::base {

/// Parses the arguments. Returns nothing, or the exit code with which to exit now: kExitFine after
/// --help, kExitUsage after wrong usage. Prints the help or one line of error.
[[nodiscard]] std::optional<int> parse(CLI::App& app, int argc, const char* const* argv);

/// Runs the body of a program and returns its exit code. An exception becomes one line on stderr.
template <class Body>
[[nodiscard]] int run_program(std::string_view name, Body body);

/// Prints `name: line` to stderr.
void print_error(std::string_view name, std::string_view line);

/// Adds --session, with SLUICE_SESSION as its environment variable. `session` holds the default.
void add_session_option(CLI::App& app, std::string& session);

enum class GpuChoice { kAuto, kReal, kSim };
[[nodiscard]] const char* to_string(GpuChoice choice);

/// Adds --gpu auto|real|sim.
void add_gpu_option(CLI::App& app, GpuChoice& choice);

template <class Body>
int run_program(std::string_view name, Body body) {
  try {
    return body();
  } catch (const UsageError& error) {
    print_error(name, error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    print_error(name, error.what());
    return kExitFailed;
  }
}

}  // namespace sluice::base
