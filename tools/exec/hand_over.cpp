#include "tools/exec/hand_over.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <sstream>
#include <string_view>

namespace sluice::tools {
namespace {

using Command = std::vector<std::string>;
using Names = std::vector<std::string_view>;

const Names kContainers{"docker",         "podman",     "nerdctl",        "ctr",
                        "crictl",         "buildah",    "apptainer",      "singularity",
                        "enroot",         "lxc",        "lxc-attach",     "lxc-start",
                        "incus",          "machinectl", "systemd-nspawn", "docker-compose",
                        "podman-compose", "distrobox",  "toolbox"};
const Names kKubernetes{"kubectl", "oc", "k3s", "helm"};
const Names kElsewhere{"ssh",  "mosh", "rsh",    "pdsh", "srun",        "sbatch", "salloc",
                       "qsub", "bsub", "oarsub", "flux", "systemd-run", "at",     "batch"};
/// Each runs the command behind its options.
const Names kWrappers{"env",     "nice", "nohup",   "timeout", "setsid", "stdbuf",  "ionice",
                      "taskset", "chrt", "numactl", "time",    "exec",   "command", "setpriv"};
const Names kShells{"sh", "bash", "dash", "zsh", "ksh"};

bool is_one_of(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string name_of(const std::string& program) {
  return std::filesystem::path(program).filename();
}

bool is_option(const std::string& word) { return word.size() > 1 && word.front() == '-'; }

/// Whether `word` is a group of short options, such as -iu, with this one.
bool has_flag(const std::string& word, char flag) {
  return is_option(word) && word[1] != '-' && word.find(flag) != std::string::npos;
}

/// Whether `env` with these words starts its program without our variables.
bool clears_environment(const Command& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "-" || word == "--ignore-environment" || has_flag(word, 'i')) return true;
    if (word == "--unset=LD_PRELOAD" || word == "-uLD_PRELOAD") return true;
    const bool unsets = word == "-u" || word == "--unset";
    if (unsets && i + 1 < words.size() && words[++i] == "LD_PRELOAD") return true;
    if (!is_option(word) && word.find('=') == std::string::npos) return false;
  }
  return false;
}

bool is_login(const Command& words) {
  return std::any_of(words.begin() + 1, words.end(), [](const std::string& word) {
    return word == "-" || word == "--login" || has_flag(word, 'l');
  });
}

/// The command that a wrapper runs: from the first word that is no option, no setting of a variable
/// and no number. Empty if there is none.
Command behind_wrapper(const Command& words) {
  const auto begins = std::find_if(words.begin() + 1, words.end(), [](const std::string& word) {
    return !word.empty() &&
           (std::isalpha(static_cast<unsigned char>(word.front())) != 0 || word.front() == '/' ||
            word.front() == '.') &&
           word.find('=') == std::string::npos;
  });
  return {begins, words.end()};
}

/// The words of the text behind `-c`, as far as blanks show them.
Command of_shell(const Command& words) {
  for (std::size_t i = 1; i + 1 < words.size() && is_option(words[i]); ++i) {
    if (!has_flag(words[i], 'c')) continue;
    std::istringstream text(words[i + 1]);
    Command command;
    for (std::string word; text >> word;) command.push_back(word);
    return command;
  }
  return {};
}

}  // namespace

std::string hand_over_warning(const std::vector<std::string>& command) {
  if (command.empty()) return {};
  const std::string name = name_of(command.front());
  const std::string ungated = ": it runs ungated, without the limits of this command line; ";
  if (is_one_of(kContainers, name)) {
    return name + " gives the settings to no program in a container" + ungated +
           "use a device of sluice cdi (docs/guide/containers.md)";
  }
  if (is_one_of(kKubernetes, name)) {
    return name + " gives the settings to no program of the cluster" + ungated +
           "use the device plugin (docs/guide/kubernetes.md)";
  }
  if (is_one_of(kElsewhere, name)) {
    return name + " has its program started elsewhere" + ungated + "write " + name +
           " ... sluice exec ... -- PROGRAM";
  }
  const bool resets = is_one_of({"sudo", "doas"}, name) ||
                      (is_one_of({"su", "runuser"}, name) && is_login(command)) ||
                      (name == "setpriv" &&
                       std::find(command.begin(), command.end(), "--reset-env") != command.end());
  if (resets || (name == "env" && clears_environment(command))) {
    return name + " takes LD_PRELOAD and SLUICE_* from its program" + ungated + "write " + name +
           " ... sluice exec ... -- PROGRAM";
  }
  if (is_one_of(kWrappers, name)) return hand_over_warning(behind_wrapper(command));
  return is_one_of(kShells, name) ? hand_over_warning(of_shell(command)) : std::string();
}

}  // namespace sluice::tools
