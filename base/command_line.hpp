#pragma once
#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"

/// Command-line parsing that all our programs share.
namespace sluice::base {

/// Parses the arguments. Returns nothing, or the exit code with which to exit now: kExitFine after
/// --help, kExitUsage after wrong usage. Prints the help or one line of error.
[[nodiscard]] std::optional<int> parse(CLI::App& app, int argc, const char* const* argv);

/// Runs the body of a program and returns its exit code. An exception becomes one line on stderr,
/// and so does output that could not be written.
template <class Body>
[[nodiscard]] int run_program(std::string_view name, Body body);

/// Prints `name: line` to stderr.
void print_error(std::string_view name, std::string_view line);

/// The exit code of a program that has printed all: kExitFailed, with a line on stderr, in place of
/// kExitFine if standard output did not take it, as on a full disk.
[[nodiscard]] int code_after_output(std::string_view name, int exit_code);

/// The first line of what another program printed to stderr, without the name that print_error()
/// puts in front, so that our own line has one name only.
[[nodiscard]] std::string printed_error(std::string_view name, const std::string& output);

/// Checks the text of an option. Returns what is wrong with it, or an empty text.
using Check = std::function<std::string(const std::string&)>;

/// A whole number from `min` to `max`.
[[nodiscard]] Check whole_number(std::int64_t min, std::int64_t max);
/// A number from `min` to `max`.
[[nodiscard]] Check number(double min, double max);
/// One of these words.
[[nodiscard]] Check one_of(std::vector<std::string> words);

/// The greatest value of a count_option() without a limit of its own.
inline constexpr std::int64_t kMostCount = 1'000'000;

/// Adds an option for a count from `least` to `most`. `value` holds the default.
void count_option(CLI::App& app, const char* names, std::size_t& value, const char* what,
                  std::int64_t least, std::int64_t most = kMostCount);

/// The fault of a session name; empty if the name is valid.
[[nodiscard]] std::string check_session_name(const std::string& name);

/// Adds --session, which SLUICE_SESSION can also set. `session` holds the default.
void add_session_option(CLI::App& app, std::string& session);

enum class GpuChoice { kAuto, kReal, kSim };

/// Adds --gpu auto|real|sim.
void add_gpu_option(CLI::App& app, GpuChoice& choice);

template <class Body>
int run_program(std::string_view name, Body body) {
  hold_standard_files();
  try {
    return code_after_output(name, body());
  } catch (const UsageError& error) {
    print_error(name, error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    print_error(name, error.what());
    return kExitFailed;
  }
}

}  // namespace sluice::base
