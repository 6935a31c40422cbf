#include "tools/exec/gpu.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>

#include "tools/exec/environment.hpp"

namespace sluice::tools {
namespace {

struct Output {
  int exit_code = 0;
  std::string text;
};

/// Runs `sluice gpus --gpu CHOICE` and returns what it printed to either stream.
Output ask_gpus(const base::Install& install, base::GpuChoice choice) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw base::RunError(std::string("no pipe: ") + std::strerror(errno));
  }
  const std::string program = install.subcommand("gpus");
  const char* wanted = to_string(choice);
  const pid_t child = fork();
  if (child == 0) {
    // A real driver that was asked for is not to be looked for in our own folder, and the
    // interposer has nothing to do with the question.
    if (choice == base::GpuChoice::kReal) set_simulated_gpu(install, false);
    remove_interposer(install);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    execl(program.c_str(), program.c_str(), "--gpu", wanted, nullptr);
    _exit(127);
  }
  close(ends[1]);
  Output output;
  std::array<char, 1024> chunk{};
  for (ssize_t got = 0; (got = read(ends[0], chunk.data(), chunk.size())) > 0;) {
    output.text.append(chunk.data(), static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) status = 127 << 8;
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 127;
  return output;
}

/// The rest of the first line that starts so; empty if none does.
std::string line_after(std::string_view start, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(start)) return line.substr(start.size());
  }
  return {};
}

}  // namespace

GpuDecision decide_gpu(const base::Install& install, base::GpuChoice choice) {
  if (choice == base::GpuChoice::kSim) return {true, ""};
  const Output output = ask_gpus(install, choice);
  if (output.exit_code != 0) {
    throw base::RunError(output.text.empty() ? install.subcommand("gpus").string() +
                                                   " could not be run; build it again"
                                             : line_after("", output.text));
  }
  return {output.text.starts_with("simulated"), line_after("why simulated: ", output.text)};
}

}  // namespace sluice::tools
