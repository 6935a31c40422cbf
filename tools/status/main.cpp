// `sluice status`: whether the session works, and why a client waits.
#include <dlfcn.h>

#include <algorithm>
#include <clocale>
#include <iostream>
#include <string>

#include "base/command_line.hpp"
#include "base/node_service.hpp"
#include "base/terminal.hpp"
#include "shm/mapping.hpp"
#include "shm/outside.hpp"
#include "shm/session.hpp"
#include "tools/common/sessions.hpp"
#include "tools/status/format.hpp"
#include "tools/status/look.hpp"

namespace sluice::tools {
namespace {

[[noreturn]] void report_no_session(const std::string& session, bool json) {
  if (json) std::cout << R"({"session": ")" << session << R"(", "controller": null})" << '\n';
  throw no_session(session);
}

/// Says it if nobody can tell which programs use the GPU without a slot.
std::string without_nvml(const shm::Snapshot& snapshot) {
  const bool real =
      std::any_of(snapshot.devices.begin(), snapshot.devices.end(),
                  [](const shm::DeviceSnapshot& device) { return !device.simulated; });
  if (!real || dlopen("libnvidia-ml.so.1", RTLD_LAZY) != nullptr) return {};
  return "no libnvidia-ml.so.1: programs that use the GPU without Sluice are not listed\n";
}

int status(int argc, char** argv) {
  CLI::App app("Show who runs, who waits, and why.", "sluice status");
  std::string session = base::default_session();
  bool json = false;
  bool coverage = false;
  base::add_session_option(app, session);
  app.add_flag("--json", json, "Print JSON, coverage included");
  app.add_flag("--coverage", coverage, "Also print the launches per driver entry");
  app.footer(
      "docs/reference/top.md explains every column and key. Exit code 1: no such session is "
      "running.\n\n"
      "Examples:\n"
      "  sluice status\n"
      "  watch -n 1 sluice status --session b\n"
      "  sluice status --json | jq '.clients[] | {name, gpu_ns, held_others_ns, target}'\n"
      "  sluice status --json | jq '.clients[] | select(.state == \"held\") | .held_by'");
  if (const auto exit_code = base::parse(app, argc, argv)) return *exit_code;
  try {
    shm::Snapshot snapshot = look_at(session);
    snapshot.outside = shm::describe_outside(snapshot, session);
    if (json) {
      std::cout << status_json(snapshot, session);
    } else {
      std::setlocale(LC_CTYPE, "");
      constexpr std::size_t kUncut = 1000;
      const std::size_t columns = base::terminal_columns().value_or(kUncut);
      std::cout << without_nvml(snapshot) << status_text(snapshot, session, columns)
                << (coverage ? coverage_text(snapshot) : "");
    }
  } catch (const shm::NoBoard&) {
    report_no_session(session, json);
  }
  return base::kExitFine;
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice status",
                                   [&] { return sluice::tools::status(argc, argv); });
}
