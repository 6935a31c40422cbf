// `sluice status`: whether the session works, and why a client waits.
#include <dlfcn.h>

#include <algorithm>
#include <clocale>
#include <iostream>
#include <string>

#include "base/command_line.hpp"
#include "base/container.hpp"
#include "base/node_service.hpp"
#include "base/processes.hpp"
#include "base/terminal.hpp"
#include "shm/mapping.hpp"
#include "shm/outside.hpp"
#include "shm/session.hpp"
#include "tools/common/sessions.hpp"
#include "tools/status/format.hpp"
#include "tools/status/json.hpp"
#include "tools/status/look.hpp"

namespace sluice::tools {
namespace {

/// What separates this process from the other programs of the machine; empty if the session is not
/// only of this container: then its controller is in none, or in another one.
std::string apart(const std::string& session, std::uint32_t controller) {
  if (session == base::kNodeSession) return {};
  const std::string name = base::read_proc(static_cast<pid_t>(controller), "comm", 32);
  return controller == 0 || name.starts_with("sluice-control") ? base::separation() : std::string();
}

nlohmann::ordered_json apart_json(const std::string& what) {
  return what.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(what);
}

[[noreturn]] void report_no_session(const std::string& session, bool json) {
  if (json) {
    std::cout << json_text(
        {{"session", session}, {"controller", nullptr}, {"apart", apart_json(apart(session, 0))}});
  }
  throw no_session(session);
}

std::string apart_note(const std::string& what) {
  if (what.empty()) return {};
  return "only of this container (" + what +
         "): programs outside are not in the session, and are not listed; sluice cdi, or "
         "--ipc=host "
         "--pid=host, shares it\n";
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
    const std::string what = apart(session, snapshot.controller_pid);
    if (json) {
      nlohmann::ordered_json object = status_object(snapshot, session);
      object["apart"] = apart_json(what);
      std::cout << json_text(object);
    } else {
      std::setlocale(LC_CTYPE, "");
      constexpr std::size_t kUncut = 1000;
      const std::size_t columns = base::terminal_columns().value_or(kUncut);
      std::cout << apart_note(what) << without_nvml(snapshot)
                << status_text(snapshot, session, columns)
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
