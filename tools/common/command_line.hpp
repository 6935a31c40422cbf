#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

/// What the command lines of all our programs have in common: one-line errors, exit codes, and the
/// options that more than one of them takes.
namespace sluice::tools {

inline constexpr int kExitFine = 0;
inline constexpr int kExitFailed = 1;  ///< The command line was good, the run failed.
inline constexpr int kExitUsage = 2;   ///< Usage or configuration.

/// Ends a command: what() is the one line for the user, without the program's name.
class CommandError : public std::runtime_error {
 public:
  CommandError(int exit_code, const std::string& line)
      : std::runtime_error(line), exit_code_(exit_code) {}
  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Parses, and answers --help and wrong usage: then there is an exit code to return at once.
[[nodiscard]] std::optional<int> parse(CLI::App& app, int argc, const char* const* argv);

/// Runs the body of a command: prints the one line of whatever it throws, returns the exit code.
template <class Body>
int run_command(std::string_view name, Body body);

/// Prints `name: line` to stderr.
void print_error(std::string_view name, std::string_view line);

/// --session, also from SLUICE_SESSION. `session` holds the default.
void add_session_option(CLI::App& app, std::string& session);

enum class GpuChoice { kAuto, kReal, kSim };
[[nodiscard]] const char* to_string(GpuChoice choice);

/// --gpu auto|real|sim
void add_gpu_option(CLI::App& app, GpuChoice& choice);

template <class Body>
int run_command(std::string_view name, Body body) {
  try {
    return body();
  } catch (const CommandError& error) {
    print_error(name, error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    print_error(name, error.what());
    return kExitFailed;
  }
}

}  // namespace sluice::tools
