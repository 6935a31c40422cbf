// `sluice X ARGS` runs libexec/sluice/sluice-X ARGS, so each folder adds its own commands.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/command_line.hpp"
#include "base/help_text.hpp"
#include "base/install.hpp"
#include "base/nearest.hpp"

namespace sluice::tools {
namespace {

struct Command {
  std::string_view name;
  std::string_view summary;
  /// In the component `lab` (cmake/SluiceLayout.cmake), which an installation may lack.
  bool lab = false;
};

/// A library without which a command is not built. `./x build` installs it.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kLibraries{{
    {"serve", "gRPC (libgrpc++-dev)"},
    {"hybrid_workload", "gRPC (libgrpc++-dev)"},
    {"opbench", "liblzma (liblzma-dev)"},
    {"predict", "liblzma (liblzma-dev)"},
}};

constexpr std::array kCommands{
    Command{"exec", "run any program, unchanged, with a priority and a policy"},
    Command{"compare", "is it worth it? measure two programs of your own, with Sluice and without"},
    Command{"status", "show who runs, who is held, and why"},
    Command{"top", "the same, live: activity, holds, rates, job durations; change policies"},
    Command{"set", "give a running client another priority, policy or target"},
    Command{"run", "run an experiment file: its models as processes, logs of completion times"},
    Command{"demo", "run one critical and one best-effort model alone, then under each policy"},
    Command{"models", "put PyTorch models into the store, for run, serve, split and train"},
    Command{"serve", "serve models over KServe v2 (gRPC, HTTP), best-effort work next to them"},
    Command{"hybrid_workload", "send requests to a model server, and report their latency"},
    Command{"records", "analyse the requests that serve wrote: a page, a table, published files"},
    Command{"train", "train a PyTorch model; gives memory back when serve needs it"},
    Command{"split", "divide a PyTorch model into blocks of even length, for a server"},
    Command{"trace", "make a file for ui.perfetto.dev, or a table, of a traced run"},
    Command{"parse", "split a kernel trace, of nsys or of our own, into tables by model"},
    Command{"report", "make one HTML page of a run, or of several to compare"},
    Command{"sweep", "run an experiment under many values of a policy, and name the best", true},
    Command{"bench", "measure what sharing a GPU costs and gives, under every policy", true},
    Command{"doctor", "check driver, GPU, session and this shell, and say what to do"},
    Command{"cdi", "print the devices that give containers a priority"},
    Command{"device-plugin", "offer GPUs with a priority to Kubernetes"},
    Command{"opbench", "measure and tune operators, on a GPU, a share of it, or the CPU", true},
    Command{"predict", "learn how long tensor programs take, and predict it for others", true},
    Command{"programs", "make tensor programs of networks, with TVM", true},
    Command{"controller", "run a session's controller in the foreground"},
    Command{"node", "run the service that all users of a machine share"},
    Command{"gpus", "list the GPUs, and say whether they are real or simulated"},
};

bool lab_is_installed() {
  return std::filesystem::exists(base::Install::of_this_program().subcommand("bench"));
}

void print_help() {
  std::ostringstream text;
  text << "Share one NVIDIA GPU between a latency-critical process and best-effort ones.\n\n"
          "Usage: sluice COMMAND [ARGS]\n\n";
  for (const Command& command : kCommands) {
    text << "  " << command.name << std::string(17 - command.name.size(), ' ') << command.summary
         << '\n';
  }
  if (!lab_is_installed()) {
    text << "\nNot installed, of the package sluice-lab:";
    for (const Command& command : kCommands) {
      if (command.lab) text << ' ' << command.name;
    }
    text << '\n';
  }
  text << "\n  help COMMAND, COMMAND --help   what a command takes\n"
          "  --version                      the version of this installation\n\n"
          "Examples:\n"
          "  sluice exec --priority 0 -- python train.py    best effort\n"
          "  sluice exec --priority 1 -- python serve.py    critical: the higher priority wins\n"
          "  sluice status                                  who runs, who holds whom\n"
          "  sluice top                                     the same, live\n"
          "  sluice set train.py --policy gate              change a client as it runs\n"
          "  sluice run exp_configs/replay/input_device.json\n\n"
          "Exit codes: those of the command; 2: no such command, or it is not installed.";
  base::print_help(text.str());
}

[[noreturn]] void refuse_unknown(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  throw base::UsageError(
      base::with_remark("unknown command '" + name + "'" + base::did_you_mean(name, names),
                        "`sluice --help` lists the commands"));
}

/// A command that is listed has no program here: says which part of Sluice has it.
[[noreturn]] void refuse_missing(const Command& command, const std::filesystem::path& program) {
  const std::string name = "`sluice " + std::string(command.name) + "`";
  if (command.lab && !lab_is_installed()) {
    throw base::UsageError(name +
                           " is in the package sluice-lab, which is not installed: apt install "
                           "./sluice-lab_" SLUICE_VERSION "_amd64.deb, or ./x build in a checkout");
  }
  for (const auto& [needy, library] : kLibraries) {
    if (needy != command.name) continue;
    throw base::UsageError(name + " was not built: no " + std::string(library) +
                           " was there; in a checkout: ./x build");
  }
  throw base::RunError(program.string() + " is missing; build or install it again");
}

/// Replaces this process; returns only by throwing.
[[noreturn]] void become(const std::string& name, std::vector<std::string> args) {
  const std::filesystem::path program = base::Install::of_this_program().subcommand(name);
  if (!std::filesystem::exists(program)) {
    for (const Command& command : kCommands) {
      if (command.name == name) refuse_missing(command, program);
    }
    refuse_unknown(name);
  }
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  throw base::RunError("cannot run " + program.string() + ": " + std::strerror(errno));
}

int dispatch(const std::vector<std::string>& args) {
  if (args.empty() || args[0] == "-h" || args[0] == "--help" ||
      (args[0] == "help" && args.size() == 1)) {
    print_help();
    return base::kExitFine;
  }
  if (args[0] == "--version") {
    std::cout << "sluice " SLUICE_VERSION "\n";
    return base::kExitFine;
  }
  if (args[0] == "help") become(args[1], {"--help"});
  // A name with a slash would leave libexec.
  if (args[0].starts_with('-') || args[0].find('/') != std::string::npos) refuse_unknown(args[0]);
  become(args[0], {args.begin() + 1, args.end()});
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice", [&] {
    return sluice::tools::dispatch(std::vector<std::string>(argv + 1, argv + argc));
  });
}
