#include "tests/tools/command.hpp"

#include <algorithm>
#include <cstdlib>

namespace sluice::test {

std::vector<std::string> sluice_command(std::vector<std::string> args) {
  args.insert(args.begin(), SLUICE_TEST_PROGRAM);
  return args;
}

base::Captured sluice(std::vector<std::string> args) {
  return Process(sluice_command(std::move(args))).finish();
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
