// `sluice exec`: the one place that knows how a process is prepared. Replaces itself by the
// program, so the pid stays.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/command_line.hpp"
#include "base/install.hpp"
#include "shm/client_name.hpp"
#include "shm/policy.hpp"
#include "shm/policy_text.hpp"
#include "shm/session.hpp"
#include "tools/exec/controller.hpp"
#include "tools/exec/environment.hpp"
#include "tools/exec/gpu.hpp"
#include "tools/exec/program.hpp"

namespace sluice::tools {
namespace {

constexpr const char* kName = "sluice exec";

struct Options {
  std::optional<int> priority;
  std::string policy = shm::to_string(shm::kDefaultPolicy);
  std::string session{base::kDefaultSession};
  base::GpuChoice gpu = base::GpuChoice::kAuto;
  std::string log_level = "warn";
  std::string trace;  ///< Folder; empty for none.
  std::string name;   ///< Empty: the interposer chooses one.
  bool intercept = true;
  std::vector<std::string> program;
};

struct UsageOfExec : CLI::Formatter {
  std::string make_usage(const CLI::App* /*app*/, std::string name) const override {
    return "Usage: " + name + " --priority N [OPTIONS] -- PROGRAM [ARGS]\n";
  }
};

std::string check_log_level(const std::string& text) {
  for (const char* level : {"off", "warn", "info", "debug"}) {
    if (text == level) return {};
  }
  return "'" + text + "' is none of off, warn, info, debug";
}

void add_options(CLI::App& app, Options& options) {
  app.formatter(std::make_shared<UsageOfExec>());
  app.add_option("--priority", options.priority, "0 is best effort; of two jobs the higher wins")
      ->envname("SLUICE_PRIORITY")
      ->type_name("0-255")
      ->check(CLI::Range(0, 255));
  app.add_option("--policy", options.policy,
                 "How it gives way to higher ones: " + std::string(shm::kPolicyForms))
      ->envname("SLUICE_POLICY")
      ->capture_default_str()
      ->type_name("POLICY")
      ->check(shm::check_policy);
  app.add_option("--name", options.name,
                 "What status, top, set and metrics call it (default: the script or the program)")
      ->envname("SLUICE_NAME")
      ->type_name("NAME")
      ->check(shm::check_client_name);
  base::add_session_option(app, options.session);
  base::add_gpu_option(app, options.gpu);
  app.add_option("--log-level", options.log_level,
                 "Of the interposer, on stderr: off, warn, info, debug")
      ->envname("SLUICE_LOG")
      ->capture_default_str()
      ->type_name("LEVEL")
      ->check(check_log_level);
  app.add_option("--trace", options.trace,
                 "Record every launch into DIR/PID.sltrace (docs/tracing.md)")
      ->envname("SLUICE_TRACE")
      ->type_name("DIR");
  app.add_flag_callback(
      "--no-intercept", [&options] { options.intercept = false; },
      "Only choose the GPU: no preload, no controller");
  app.footer(
      "Sets LD_PRELOAD and SLUICE_* (docs/environment.md), starts the session's controller if "
      "there\n"
      "is none, and becomes PROGRAM. With --log-level info or debug, a controller started here "
      "logs\n"
      "to the same stderr.\n\nExamples:\n"
      "  sluice exec --priority 0 -- python train.py\n"
      "  sluice exec --priority 100 --session b -- ./server --port 80\n"
      "  sluice exec --priority 0 --trace seen -- python train.py\n"
      "  sluice exec --priority 0 --policy gate --gpu sim -- PROGRAM\n\n"
      "Exit codes: PROGRAM's own; before it is started, 1: no such GPU, or it cannot be run; 2: "
      "wrong\nusage, or no such program.");
}

/// Options are ours up to `--`, everything after it is the program's.
std::optional<int> parse_command_line(int argc, char** argv, Options& options) {
  CLI::App app("Run any program, unchanged, with a priority and a policy.", kName);
  add_options(app, options);
  char** const end = argv + argc;
  char** const dashes = std::find(argv + 1, end, std::string_view("--"));
  const bool help = std::any_of(
      argv + 1, dashes, [](std::string_view arg) { return arg == "-h" || arg == "--help"; });
  // First of all: without the --, the program would be reported as an option that we do not know.
  if (end - dashes < 2 && !help) {
    throw base::UsageError(
        "no program: it comes after --, as in sluice exec --priority 0 "
        "-- python train.py");
  }
  if (const auto exit_code = base::parse(app, static_cast<int>(dashes - argv), argv))
    return exit_code;
  options.program.assign(dashes + 1, end);
  if (options.intercept && !options.priority) {
    throw base::UsageError("--priority is required (0-255, 0 is best effort)");
  }
  return std::nullopt;
}

void warn(const Options& options, const std::string& line) {
  if (options.log_level != "off") base::print_error(kName, line);
}

/// The program may change its working directory: the path is absolute.
std::string make_folder(const std::string& name) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(name);
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw base::UsageError("--trace: " + folder.string() + " cannot be made: " + error.message());
  }
  return folder;
}

void prepare_interception(const Options& options, const base::Install& install) {
  const std::string preload = preload_with_interposer(install);
  // The controller is started before LD_PRELOAD is set: it needs no interposer.
  const bool log_to_stderr = options.log_level == "info" || options.log_level == "debug";
  const std::string warning =
      ensure_controller(install, options.session, options.log_level, log_to_stderr);
  if (!warning.empty()) warn(options, warning);
  setenv("LD_PRELOAD", preload.c_str(), 1);
  setenv("SLUICE_PRIORITY", std::to_string(*options.priority).c_str(), 1);
  setenv("SLUICE_POLICY", options.policy.c_str(), 1);
  setenv("SLUICE_LOG", options.log_level.c_str(), 1);
  if (!options.name.empty()) setenv("SLUICE_NAME", options.name.c_str(), 1);
  if (!options.trace.empty()) setenv("SLUICE_TRACE", make_folder(options.trace).c_str(), 1);
}

int exec(int argc, char** argv) {
  Options options;
  if (const auto exit_code = parse_command_line(argc, argv, options)) return *exit_code;
  const base::Install install = base::Install::of_this_program();
  const std::string program = find_program(install, options.program[0]);
  const GpuDecision gpu = decide_gpu(install, options.gpu);
  set_simulated_gpu(install, gpu.simulated);
  if (!gpu.reason.empty()) {
    warn(options,
         "using the simulated GPU, which programs of the CUDA runtime (PyTorch) cannot use: " +
             gpu.reason);
  }
  // Also without interception: the simulated GPU is one per session.
  setenv("SLUICE_SESSION", options.session.c_str(), 1);
  if (options.intercept) {
    prepare_interception(options, install);
  } else {
    remove_interposer(install);
  }
  std::vector<char*> args;
  for (std::string& arg : options.program) args.push_back(arg.data());
  args.push_back(nullptr);
  execv(program.c_str(), args.data());
  throw base::RunError("cannot run " + program + ": " + std::strerror(errno));
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice exec", [&] { return sluice::tools::exec(argc, argv); });
}
