// Compares the simulated driver with the real one: driver_probe must print the same lines as on an
// H200 (driver 580.159, CUDA 13.0, 2026-11). A simulator that repeats our own mistakes proves
// nothing.
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/session.hpp"

namespace {

std::vector<std::string> lines_of(std::istream& in) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Answers, AreThoseOfTheRealDriver) {
  const sluice::test::Session session("simgpu");
  const std::string file = session.file("answers.txt");
  ASSERT_EQ(std::system((std::string(SLUICE_DRIVER_PROBE) + " > " + file).c_str()), 0);
  std::ifstream asked(file);
  std::ifstream recorded(SLUICE_ANSWERS_H200);
  const std::vector<std::string> here = lines_of(asked);
  const std::vector<std::string> there = lines_of(recorded);
  ASSERT_GT(there.size(), 500U);
  ASSERT_EQ(here.size(), there.size());
  for (std::size_t i = 0; i < here.size(); ++i) EXPECT_EQ(here[i], there[i]);
}

}  // namespace
