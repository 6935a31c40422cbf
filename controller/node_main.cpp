// `sluice node`: the controller of the board that all users of the machine share.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <optional>
#include <string>

#include "base/command_line.hpp"
#include "base/node_service.hpp"
#include "controller/daemon.hpp"
#include "controller/node_admission.hpp"
#include "controller/node_board.hpp"
#include "controller/program.hpp"

namespace {

using namespace sluice;

constexpr const char* kName = "sluice node";

constexpr const char* kExamples = R"(
Without a site policy, root may ask for priority 255 and everybody else for 0. SIGHUP reads the
policy again. SLUICE_NODE_DIR names another folder than /run/sluice. docs/guide/users.md says how
to run it as a service.

Examples:
  sluice node                                       as root, in the foreground, until Ctrl-C
  sluice node --policy site.json --metrics 127.0.0.1:9464

Exit codes: 0 orderly exit, 1 could not run, 2 usage, or a fault in the policy.)";

struct Options {
  std::string policy;
  controller::ProgramOptions program;
};

std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app("The service that lets all users of this machine share its GPUs by priority.",
               kName);
  app.footer(kExamples);
  app.add_option("--policy", options.policy,
                 std::string("Who may ask for which priority (default: ") +
                     controller::SitePolicy::kFile + ", if it exists)")
      ->type_name("FILE");
  controller::add_program_options(app, options.program);
  return base::parse(app, argc, argv);
}

/// A connection needs two descriptors: its socket, and one that watches its process.
void raise_file_limit() {
  constexpr rlim_t kEnough = 8192;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, kEnough);
  setrlimit(RLIMIT_NOFILE, &limit);
}

void serve(const Options& options, const base::SignalFd& signals) {
  raise_file_limit();
  const std::string session(base::kNodeSession);
  controller::NodeFolder folder(base::node_folder());
  const std::string ceilings = folder.path() + "/ceilings";
  auto board = controller::NodeBoard::take(std::move(folder), options.program.max_hold_ns());
  const bool adopted = board->adopted();
  controller::NodeAdmission admission(options.policy, ceilings, board->memory(),
                                      board->for_reading());
  controller::Daemon daemon({.session = session, .on_hang_up = [&] { admission.reload(); }},
                            std::move(board), admission, signals);
  controller::serve(daemon, options.program, session,
                    "sluice node ready: pid=" + std::to_string(getpid()) +
                        " board=" + (adopted ? "adopted" : "new") +
                        " socket=" + daemon.socket_path() + " (" + admission.about() + ")",
                    {.users = true});
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto exit_code = parse(argc, argv, options)) return *exit_code;
  signal(SIGHUP, SIG_DFL);  // an ignored signal would not arrive
  // Before the first thread, so that every thread inherits the blocked signals.
  const base::SignalFd signals{SIGTERM, SIGINT, SIGHUP};
  controller::run_program(kName, options.program, [&] { serve(options, signals); });
}
