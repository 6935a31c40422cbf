// Compares the simulated driver with the real one: driver_probe must print the same lines as on an
// H200 (driver 580.159, CUDA 13.0, 2026-11). A simulator that repeats our own mistakes proves
// nothing.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/session.hpp"

namespace {

std::vector<std::string> lines_of(std::istream& in) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> ask(const std::string& file) {
  EXPECT_EQ(std::system((std::string(SLUICE_DRIVER_PROBE) + " > " + file).c_str()), 0);
  std::ifstream asked(file);
  return lines_of(asked);
}

// On a busy machine, work may end before a call that was blocked returns, and then a query's answer
// is another one. So a line counts as wrong if it is wrong three times.
TEST(Answers, AreThoseOfTheRealDriver) {
  const sluice::test::Session session("simgpu");
  std::ifstream recorded(SLUICE_ANSWERS_H200);
  const std::vector<std::string> there = lines_of(recorded);
  ASSERT_GT(there.size(), 500U);
  std::vector<std::string> wrong(there.size(), "never asked");
  const auto any_wrong = [&] {
    return std::any_of(wrong.begin(), wrong.end(), [](const auto& line) { return !line.empty(); });
  };
  for (int i = 0; i < 3 && any_wrong(); ++i) {
    const std::vector<std::string> here = ask(session.file("answers.txt"));
    ASSERT_EQ(here.size(), there.size());
    for (std::size_t line = 0; line < here.size(); ++line) {
      if (!wrong[line].empty()) wrong[line] = here[line] == there[line] ? "" : here[line];
    }
  }
  for (std::size_t i = 0; i < there.size(); ++i) {
    EXPECT_EQ(wrong[i], "") << "the real driver: " << there[i];
  }
}

}  // namespace
