#pragma once
#include <string>
#include <vector>

namespace sluice::predictor {

/// An action of `sluice predict`.
struct Action {
  std::string name;
  std::string what;           ///< One line for the help.
  std::string program{};      ///< `sluice PROGRAM`, if the action is in Python.
  std::string replaced_by{};  ///< Of a published action without use here: what to do instead.
};

[[nodiscard]] const std::vector<Action>& actions();
[[nodiscard]] std::vector<std::string> action_names();
/// `sluice predict --help`.
[[nodiscard]] std::string general_help();

/// The command line with its action as the first argument: `-o ACTION` is the same as `ACTION`.
/// Behind an action, -o is the action's own. Without an action the line stays as it is.
[[nodiscard]] std::vector<std::string> action_first(std::vector<std::string> args);

/// Replaces this process if the action is in Python. Throws base::RunError if that fails.
void run_in_python(const std::vector<std::string>& args);

}  // namespace sluice::predictor
