// `sluice exec`: prepares this process and replaces it by the program, so the pid stays. No other
// file knows how a process is prepared.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/command_line.hpp"
#include "base/gpus.hpp"
#include "base/install.hpp"
#include "base/node_service.hpp"
#include "shm/client_name.hpp"
#include "shm/give.hpp"
#include "shm/labels.hpp"
#include "shm/memory_limit.hpp"
#include "shm/policy.hpp"
#include "shm/policy_text.hpp"
#include "shm/session.hpp"
#include "shm/slice.hpp"
#include "shm/target.hpp"
#include "shm/weight.hpp"
#include "tools/exec/controller.hpp"
#include "tools/exec/environment.hpp"
#include "tools/exec/hand_over.hpp"
#include "tools/exec/mps.hpp"
#include "tools/exec/program_file.hpp"
#include "tools/exec/width.hpp"

namespace sluice::tools {
namespace {

constexpr const char* kName = "sluice exec";

struct Options {
  std::optional<int> priority;
  std::string policy = shm::to_string(shm::kDefaultPolicy);
  std::string target;  ///< Empty: none.
  std::string give;    ///< Empty: the default.
  std::string close;   ///< Of 0.2; empty, `first` or `law`.
  std::string slice;   ///< Empty: auto.
  std::string memory;  ///< Empty: no limit.
  std::string weight;  ///< Empty: none.
  std::vector<std::string> labels;
  std::string session = base::default_session();
  std::string name;  ///< Empty: the interposer chooses one.
  std::string gpu;   ///< Empty: the GPU that the program finds by itself.
  std::string log_level = "warn";
  std::string trace;  ///< Folder; empty for none.
  bool intercept = true;
  bool mps = false;
  std::string sms;  ///< Empty: auto.
  std::vector<std::string> program;
};

struct UsageOfExec : CLI::Formatter {
  std::string make_usage(const CLI::App* /*app*/, std::string name) const override {
    return "Usage: " + name + " --priority N [OPTIONS] [--] PROGRAM [ARGS]\n";
  }
};

void add_options(CLI::App& app, Options& options) {
  app.formatter(std::make_shared<UsageOfExec>());
  app.add_option("--priority", options.priority,
                 "Whose jobs go first: 0 is best effort, the higher number wins")
      ->envname("SLUICE_PRIORITY")
      ->type_name("0-255")
      ->check(base::whole_number(0, 255));
  app.add_option("--policy", options.policy,
                 "How it gives way to higher priorities: " + std::string(shm::kPolicyForms))
      ->envname("SLUICE_POLICY")
      ->capture_default_str()
      ->type_name("POLICY")
      ->check(shm::check_policy);
  app.add_option(
         "--target", options.target,
         "What latency is good enough for its jobs; the programs below it run for longer: " +
             std::string(shm::kTargetForms))
      ->envname("SLUICE_TARGET")
      ->type_name("TARGET")
      ->check(shm::check_target);
  app.add_option("--give", options.give,
                 "How much longer its jobs and steps may take, averaged over a minute, so that the "
                 "programs below it get something: " +
                     std::string(shm::kGiveForms) +
                     " (default: " + shm::give_text(shm::kDefaultGive) + ")")
      ->envname("SLUICE_GIVE")
      ->type_name("SHARE")
      ->check(shm::check_give);
  app.add_option("--close", options.close)
      ->group("")  // not in the help
      ->check(base::one_of({"first", "law"}));
  app.add_option(
         "--slice", options.slice,
         "Its time slice on the GPU next to a higher priority: " + std::string(shm::kSliceForms))
      ->envname("SLUICE_SLICE")
      ->type_name("SLICE")
      ->check(shm::check_slice);
  app.add_option("--memory", options.memory,
                 "The most device memory that it may hold on each GPU, and all that it sees: " +
                     std::string(shm::kMemoryLimitForms))
      ->envname("SLUICE_MEMORY")
      ->type_name("SIZE")
      ->check(shm::check_memory_limit);
  app.add_option(
         "--weight", options.weight,
         "Its part of the GPU among programs of its priority: " + std::string(shm::kWeightForms))
      ->envname("SLUICE_WEIGHT")
      ->type_name("N")
      ->check(shm::check_weight);
  app.add_flag("--mps", options.mps,
               "Run under the MPS daemon of the session, which the first such program starts: a "
               "fatal fault of one program ends the kernels of all (docs/guide/space.md)")
      ->envname("SLUICE_MPS");
  app.add_option(
         "--sms", options.sms,
         std::string("The part of the SMs that best effort may use under --mps: ") + kWidthForms)
      ->envname("SLUICE_SMS")
      ->type_name("WIDTH")
      ->check(check_width);
  app.add_option("--name", options.name,
                 "Its name in status, top, set and the metrics (default: the name of the script "
                 "or the program)")
      ->envname("SLUICE_NAME")
      ->type_name("NAME")
      ->check(shm::check_client_name);
  app.add_option("--label", options.labels,
                 "A label in status, top and the metrics; may be given several times (in a Slurm "
                 "job, job=ID is added)")
      ->envname("SLUICE_LABEL")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->check(shm::check_labels);
  base::add_session_option(app, options.session);
  app.add_option("--gpu", options.gpu,
                 "sim: the simulated GPU, which PyTorch and other users of the CUDA runtime cannot "
                 "use; real: fail unless there is a real one (default: whatever the program finds)")
      ->type_name("real|sim")
      ->check(base::one_of({"real", "sim"}));
  app.add_option("--log-level", options.log_level, "What the interposer prints to stderr")
      ->envname("SLUICE_LOG")
      ->capture_default_str()
      ->type_name("off|warn|info|debug")
      ->check(base::one_of({"off", "warn", "info", "debug"}));
  app.add_option("--trace", options.trace,
                 "Record every launch into DIR/PID.sltrace (docs/guide/traces.md)")
      ->envname("SLUICE_TRACE")
      ->type_name("DIR");
  app.add_flag_callback(
      "--no-intercept", [&options] { options.intercept = false; },
      "Only choose the GPU: no preload, no controller");
  app.footer(
      "PROGRAM runs unchanged and keeps this process's pid. If something is wrong with the "
      "session,\n"
      "one line warns and PROGRAM runs ungated. exec sets LD_PRELOAD and SLUICE_* variables\n"
      "(docs/reference/environment.md) and starts the session's controller if there is none. With\n"
      "--log-level info or debug, that controller logs to the same stderr.\n\n"
      "Examples:\n"
      "  sluice exec --priority 0 -- python train.py\n"
      "  sluice exec --priority 1 --name api --session b -- ./server --port 80\n"
      "  sluice exec --priority 1 --target p99=50ms -- ./server\n"
      "  sluice exec --priority 1 --give 2.5% -- ./server\n"
      "  sluice exec --priority 0 --memory 20GiB -- python train.py\n"
      "  sluice exec --priority 0 --mps --sms 50% -- python train.py\n"
      "  sluice exec --priority 0 --label team=vision --label job=4711 -- python train.py\n"
      "  sluice exec --priority 0 --trace seen -- python train.py\n"
      "  sluice exec --priority 0 --gpu sim -- sluice-example-spin\n\n"
      "Exit codes: that of PROGRAM; 1: no such GPU, or PROGRAM cannot be run; 2: wrong usage, or "
      "no\n"
      "such program.");
}

/// Whether the option takes the next argument. An unknown option takes none.
bool takes_next(const CLI::App& app, const std::string& argument) {
  if (argument.find('=') != std::string::npos) return false;
  const CLI::Option* option = app.get_option_no_throw(argument);
  return option != nullptr && option->get_expected_max() > 0;
}

/// The index of the program: the argument after `--`, else the first one that is not an option.
/// `end_of_ours` is the index after the last option of ours.
int find_program_arguments(const CLI::App& app, int argc, char** argv, int& end_of_ours) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    end_of_ours = i;
    if (argument == "--") return i + 1;
    if (!argument.starts_with('-')) return i;
    if (takes_next(app, argument) && i + 1 < argc && std::string_view(argv[i + 1]) != "--") ++i;
  }
  end_of_ours = argc;
  return argc;
}

/// The labels as SLUICE_LABEL has them.
std::string all_of(const std::vector<std::string>& labels) {
  std::string text;
  for (const std::string& label : labels) text += (text.empty() ? "" : ",") + label;
  return text;
}

std::optional<int> parse_command_line(int argc, char** argv, Options& options) {
  CLI::App app("Run any program, unchanged, with a priority and a policy.", kName);
  add_options(app, options);
  int end_of_ours = 0;
  const int program = find_program_arguments(app, argc, argv, end_of_ours);
  if (const auto exit_code = base::parse(app, end_of_ours, argv)) return exit_code;
  options.program.assign(argv + program, argv + argc);
  if (options.program.empty()) {
    throw base::UsageError(
        "no program: it comes after the options, as in sluice exec --priority 0 -- python "
        "train.py");
  }
  if (options.intercept && !options.priority) {
    throw base::UsageError("--priority is required (0-255, 0 is best effort)");
  }
  if (!options.sms.empty() && !options.mps) {
    throw base::UsageError("--sms is a width under MPS: it needs --mps");
  }
  if (const std::string fault = shm::check_labels(all_of(options.labels)); !fault.empty()) {
    throw base::UsageError("--label: " + fault);
  }
  return std::nullopt;
}

void warn(const Options& options, const std::string& line) {
  if (options.log_level != "off" && !line.empty()) base::print_error(kName, line);
}

/// `--close first` of 0.2 is `--give 0`, and `--close law` is the default.
void take_former_option(Options& options) {
  if (options.close.empty()) return;
  const bool first = options.close == "first";
  if (first && options.give.empty()) options.give = "0";
  warn(options, first ? "--close first is --give 0 now" : "--close law is the default, and goes");
}

/// Returns an absolute path: the program may change its working directory.
std::string make_folder(const std::string& name) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(name, error);
  if (!error) std::filesystem::create_directories(folder, error);
  if (error) {
    throw base::UsageError("--trace: " + (folder.empty() ? name : folder.string()) +
                           " cannot be made: " + error.message());
  }
  return folder;
}

/// Throws UsageError if no GPU has so much memory. Where there is no GPU, the program says so.
void check_memory_fits(const Options& options, const base::Install& install) {
  const auto limit = shm::parse_memory_limit(options.memory);
  if (!options.intercept || !limit || *limit == 0) return;
  std::uint64_t most = 0;
  try {
    const std::string choice = options.gpu.empty() ? "real" : options.gpu;
    most = base::query_gpus(install, choice, options.session).most_memory;
  } catch (const base::RunError&) {
    return;
  }
  if (most == 0 || *limit <= most) return;
  const std::uint64_t tenths = most * 10 / (std::uint64_t{1} << 30U);  // rounded down
  throw base::UsageError(
      fmt::format("--memory: '{}' is more than the GPU has: a limit is 1GiB to {}.{}GiB here",
                  options.memory, tenths / 10, tenths % 10));
}

void prepare_interception(const Options& options, const base::Install& install,
                          const std::string& program) {
  std::string preload;
  try {
    preload = preload_with_interposer(install);
  } catch (const base::RunError& error) {
    warn(options, std::string(error.what()) + "; the program runs ungated");
    return;
  }
  warn(options, shm::policy_warning(*shm::parse_policy(options.policy)));
  if (*options.priority == 0 && !options.target.empty() && options.target != "none") {
    warn(options, "--target has no effect at priority 0: no program waits for its jobs");
  }
  const auto give = shm::parse_give(options.give);
  if (*options.priority == 0 && give && *give != shm::kDefaultGive) {
    warn(options, "--give has no effect at priority 0: no program is below it");
  }
  if (const std::string other = passed_by(install, preload); !other.empty()) {
    warn(options, other + " is preloaded and hooks launches, too: Sluice calls the driver past it");
  }
  // The controller is started before LD_PRELOAD is set: it needs no interposer.
  const bool log_to_stderr = options.log_level == "info" || options.log_level == "debug";
  warn(options, ensure_controller(install, options.session, options.log_level, log_to_stderr));
  const Reach reach = reach_of(program);
  // A client of a container engine is often a static program, and sudo is setuid: that it hands its
  // work over says more, and what to do.
  const std::string handed_over = hand_over_warning(options.program);
  warn(options, handed_over.empty() ? reach.warning : handed_over);
  if (reach.preload) setenv("LD_PRELOAD", preload.c_str(), 1);
  allow_preload_before_asan();
  setenv("SLUICE_PRIORITY", std::to_string(*options.priority).c_str(), 1);
  setenv("SLUICE_POLICY", options.policy.c_str(), 1);
  setenv("SLUICE_LOG", options.log_level.c_str(), 1);
  struct stat standard_error {};
  if (fstat(STDERR_FILENO, &standard_error) == 0) {
    const std::string file =
        std::to_string(standard_error.st_dev) + ":" + std::to_string(standard_error.st_ino);
    setenv("SLUICE_STDERR", file.c_str(), 1);
  }
  if (!options.name.empty()) setenv("SLUICE_NAME", options.name.c_str(), 1);
  if (!options.target.empty()) setenv("SLUICE_TARGET", options.target.c_str(), 1);
  if (!options.give.empty()) setenv("SLUICE_GIVE", options.give.c_str(), 1);
  if (!options.slice.empty()) setenv("SLUICE_SLICE", options.slice.c_str(), 1);
  if (!options.memory.empty()) setenv("SLUICE_MEMORY", options.memory.c_str(), 1);
  if (!options.weight.empty()) setenv("SLUICE_WEIGHT", options.weight.c_str(), 1);
  if (!options.labels.empty()) setenv("SLUICE_LABEL", all_of(options.labels).c_str(), 1);
}

MpsOptions mps_options(const Options& options) {
  return {options.session, options.gpu, options.sms, options.priority};
}

/// Before LD_PRELOAD is set: the daemon needs no interposer.
void prepare_mps(const Options& options, const MpsPlan& plan, const base::Install& install) {
  for (const std::string& line : use_mps(mps_options(options), plan, install)) warn(options, line);
  if (options.priority.value_or(0) > 0 && !options.sms.empty()) {
    warn(options, "--sms has no effect above priority 0: such a program may use all SMs");
  }
}

int exec(int argc, char** argv) {
  // The program gets the signals as we got them; base::start_child() may need another SIGCHLD.
  struct sigaction child_signal {};
  sigaction(SIGCHLD, nullptr, &child_signal);
  Options options;
  if (const auto exit_code = parse_command_line(argc, argv, options)) return *exit_code;
  take_former_option(options);
  const base::Install install = base::Install::of_this_program();
  const std::string program = find_program(install, options.program[0]);
  // This process may run in a shell that runs under `sluice exec`.
  remove_interposer(install);
  check_memory_fits(options, install);
  const MpsPlan mps = options.mps ? plan_mps(mps_options(options), install) : MpsPlan{};
  if (options.gpu == "sim") use_simulated_gpu(install);
  if (options.gpu == "real") use_real_gpu(install);
  // Also without interception: each session has its own simulated GPU.
  setenv("SLUICE_SESSION", options.session.c_str(), 1);
  if (!options.trace.empty()) setenv("SLUICE_TRACE", make_folder(options.trace).c_str(), 1);
  if (options.mps) prepare_mps(options, mps, install);
  if (options.intercept) prepare_interception(options, install, program);
  std::vector<char*> args;
  for (std::string& arg : options.program) args.push_back(arg.data());
  args.push_back(nullptr);
  sigaction(SIGCHLD, &child_signal, nullptr);
  execvp(program.c_str(), args.data());  // a script without #! is run by the shell, as everywhere
  const int error = errno;
  // The program is there: what starts it is not.
  const std::string starter = error == ENOENT ? starter_of(program) : std::string();
  throw base::RunError("cannot run " + program + ": " +
                       (starter.empty() ? std::strerror(error)
                                        : "it is started by " + starter + ", which is missing"));
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice exec", [&] { return sluice::tools::exec(argc, argv); });
}
