#pragma once
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "runner/config_error.hpp"

namespace sluice::runner {

inline constexpr int kExitFine = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

/// Parses; nothing, or the exit code with which to end at once (--help: 0, wrong usage: 2).
[[nodiscard]] inline std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    const std::string& name = app.get_name();
    std::fprintf(stderr, "%s: %s; see %s --help\n", name.c_str(), error.what(), name.c_str());
    return kExitUsage;
  }
}

/// Runs a program's body: prints the one line of what it throws, returns the exit code.
template <class Body>
[[nodiscard]] int run_program(const char* name, Body body) {
  try {
    return body();
  } catch (const ConfigError& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return kExitFailed;
  }
}

}  // namespace sluice::runner
