#include "tests/tools/command.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/container.hpp"

namespace sluice::test {

std::vector<std::string> sluice_command(std::vector<std::string> args) {
  args.insert(args.begin(), SLUICE_TEST_PROGRAM);
  return args;
}

base::Captured sluice(std::vector<std::string> args) {
  return without_container_line(Process(sluice_command(std::move(args))).finish());
}

base::Captured without_container_line(base::Captured result) {
  // Where the tests run in a container, the first controller of a session says so.
  const std::size_t line = result.err.find("sluice exec: session ");
  const std::size_t says = result.err.find(" is only of this container (");
  const std::size_t end = result.err.find('\n', line);
  if (!base::separation().empty() && line < says && says < end && end != std::string::npos) {
    result.err.erase(line, end + 1 - line);
  }
  return result;
}

int lines_in(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

void CommandTest::SetUp() {
  for (const char* name :
       {"SLUICE_PRIORITY", "SLUICE_POLICY", "SLUICE_LOG", "LD_PRELOAD", "LD_LIBRARY_PATH"}) {
    unsetenv(name);
  }
}

}  // namespace sluice::test
