#include "profiler/workers/mps_daemon.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/child.hpp"
#include "base/error.hpp"
#include "base/install.hpp"

namespace sluice::profiler {
namespace {

/// Sets the variables NAME=VALUE of the lines up to an empty one. False if there are none.
bool take_variables(const base::Fd& lines) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(fdopen(dup(lines.get()), "r"),
                                                             std::fclose);
  std::array<char, 4096> line{};
  bool any = false;
  while (std::fgets(line.data(), line.size(), file.get()) != nullptr && line[0] != '\n') {
    std::string variable(line.data());
    variable.pop_back();
    const std::size_t equals = variable.find('=');
    setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
    any = true;
  }
  return any;
}

}  // namespace

MpsDaemon::MpsDaemon() {
  log_ = std::filesystem::temp_directory_path() / fmt::format("sluice-pairs-mps-{}", getpid());
  std::filesystem::create_directories(log_);
  base::Pipe in;
  base::Pipe out;
  base::ChildOptions options;
  options.args = {base::Install::of_this_program().subcommand("mps"), "--log", log_};
  options.stdin_fd = in.read.get();
  options.stdout_fd = out.write.get();
  options.own_group = true;
  pid_ = base::start_child(options);
  out.write.reset();
  stdin_ = std::move(in.write);
  if (take_variables(out.read)) return;
  end();
  throw base::RunError("the MPS daemon did not start; see the line above");
}

void MpsDaemon::end() {
  stdin_.reset();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  std::error_code ignored;
  std::filesystem::remove_all(log_, ignored);
}

}  // namespace sluice::profiler
