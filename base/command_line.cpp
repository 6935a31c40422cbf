#include "base/command_line.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>

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

}  // namespace

std::optional<int> parse(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    refuse_bad_variables(app);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << '\n';
    return kExitFine;
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    std::replace(line.begin(), line.end(), '\n', ' ');
    print_error(app.get_name(), line + "; see " + app.get_name() + " --help");
    return kExitUsage;
  }
}

void print_error(std::string_view name, std::string_view line) {
  std::cerr << name << ": " << line << '\n';
}

void add_session_option(CLI::App& app, std::string& session) {
  app.add_option("--session", session, "Name of the session: one controller and one board")
      ->envname("SLUICE_SESSION")
      ->capture_default_str()
      ->type_name("NAME")
      ->check([](const std::string& name) {
        return valid_session_name(name)
                   ? std::string()
                   : "'" + name +
                         "' cannot name a session: 1 to 32 of A-Z a-z 0-9 _ - and inner dots";
      });
}

const char* to_string(GpuChoice choice) {
  switch (choice) {
    case GpuChoice::kReal:
      return "real";
    case GpuChoice::kSim:
      return "sim";
    case GpuChoice::kAuto:
      break;
  }
  return "auto";
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
      ->check([](const std::string& text) {
        return text == "auto" || text == "real" || text == "sim"
                   ? std::string()
                   : "'" + text + "' is not one of auto, real, sim";
      });
}

}  // namespace sluice::base
