#include "base/command_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "base/help_text.hpp"
#include "base/nearest.hpp"
#include "base/session.hpp"

namespace sluice::base {

namespace {

/// Some versions of CLI11 ignore an environment variable with an invalid value. The user who set
/// the variable must learn of it.
void refuse_bad_variables(CLI::App& app) {
  for (CLI::Option* option : app.get_options([](CLI::Option* o) { return o->count() == 0; })) {
    const std::string& name = option->get_envname();
    const char* value = name.empty() ? nullptr : std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') continue;
    std::string text = value;
    const std::string fault = (*option->get_validator(0))(text);
    throw CLI::ValidationError(name, fault.empty() ? "'" + text + "' cannot be used" : fault);
  }
}

/// The long and short options as they are typed.
std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

/// What is wrong with the arguments that nothing takes; empty if there are none. An unknown option
/// comes first: what follows it may only look like an argument too many.
std::string fault_of_extras(const CLI::App& app, const CLI::App& command) {
  const std::vector<std::string> extras = app.remaining(true);
  if (extras.empty()) return {};
  for (const std::string& extra : extras) {
    if (!extra.starts_with('-')) continue;
    const std::string name = extra.substr(0, extra.find('='));
    return "unknown option " + name + did_you_mean(name, option_names(command));
  }
  return "unexpected argument '" + extras.front() + "'";
}

/// The subcommand that was given, however deep; `name` becomes what the user typed for it.
const CLI::App& given_command(const CLI::App& app, std::string& name) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  return *command;
}

}  // namespace

std::optional<int> parse(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    refuse_bad_variables(app);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    print_help(app.help());
    return kExitFine;
  } catch (const CLI::ParseError& error) {
    std::string name = app.get_name();
    std::string line = fault_of_extras(app, given_command(app, name));
    if (line.empty()) line = error.what();
    std::replace(line.begin(), line.end(), '\n', ' ');
    print_error(app.get_name(), with_remark(line, "see " + name + " --help"));
    return kExitUsage;
  }
}

void print_error(std::string_view name, std::string_view line) {
  std::cerr << name << ": " << line << '\n';
}

int code_after_output(std::string_view name, int exit_code) {
  // std::cout has no buffer of its own: it writes to that of stdout.
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  print_error(name, "standard output could not be written (is its disk full?): text is missing");
  return exit_code == kExitFine ? kExitFailed : exit_code;
}

std::string printed_error(std::string_view name, const std::string& output) {
  const std::string line = output.substr(0, output.find('\n'));
  const std::string prefix = std::string(name) + ": ";
  return line.starts_with(prefix) ? line.substr(prefix.size()) : line;
}

Check whole_number(std::int64_t min, std::int64_t max) {
  return [min, max](const std::string& text) {
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    const bool good = parsed.ec == std::errc{} && parsed.ptr == end && value >= min && value <= max;
    return good ? std::string()
                : fmt::format("'{}' is not a whole number from {} to {}", text, min, max);
  };
}

Check number(double min, double max) {
  return [min, max](const std::string& text) {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    const bool good = parsed.ec == std::errc{} && parsed.ptr == end && value >= min && value <= max;
    return good ? std::string() : fmt::format("'{}' is not a number from {} to {}", text, min, max);
  };
}

Check one_of(std::vector<std::string> words) {
  return [words = std::move(words)](const std::string& text) {
    if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
    return fmt::format("'{}' is not one of {}", text, fmt::join(words, ", "));
  };
}

void count_option(CLI::App& app, const char* names, std::size_t& value, const char* what,
                  std::int64_t least, std::int64_t most) {
  app.add_option(names, value, what)
      ->capture_default_str()
      ->type_name("N")
      ->check(whole_number(least, most));
}

std::string check_session_name(const std::string& name) {
  if (valid_session_name(name)) return {};
  return "'" + name + "' cannot name a session: 1 to 32 of A-Z a-z 0-9 _ - and inner dots";
}

void add_session_option(CLI::App& app, std::string& session) {
  app.add_option("--session", session, "Name of the session: one controller and one board")
      ->envname("SLUICE_SESSION")
      ->capture_default_str()
      ->type_name("NAME")
      ->check(check_session_name);
}

void add_gpu_option(CLI::App& app, GpuChoice& choice) {
  app.add_option_function<std::string>(
         "--gpu",
         [&choice](const std::string& text) {
           choice = text == "real"  ? GpuChoice::kReal
                    : text == "sim" ? GpuChoice::kSim
                                    : GpuChoice::kAuto;
         },
         "Which GPU: auto is the real GPU if a driver finds a device, else the simulated one")
      ->default_str("auto")
      ->type_name("auto|real|sim")
      ->check(one_of({"auto", "real", "sim"}));
}

}  // namespace sluice::base
