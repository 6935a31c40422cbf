// What windows cost next to neighbours that come and go, and in programs with phases, in virtual
// time.
#include <gtest/gtest.h>

#include <random>

#include "tests/intercept/step_programs.hpp"

namespace sluice::intercept::test {
namespace {

// Prevents: windows that were dear next to each neighbour of before open again and again next to
// the one that has just come, and what they cost is forgotten.
TEST(StepLaw, NeighboursThatComeAndGoPayForNoWindowsOfTheirOwn) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 60; ++i) {
    const Program program{.step = 2 + double(random() % 40),
                          .price = 1,
                          .overrun = 0.3 + double(random() % 12),
                          .spill = double(random() % 2) / 2};
    const unsigned longest = 40 + unsigned(random() % 400);
    Together run(random());
    Sum sum;
    while (sum.steps < 20'000) {
      run.law.neighbours(random());
      const Sum part = run.run(program, 10 + int(random() % longest));
      sum.steps += part.steps;
      sum.took += part.took;
      sum.alone += part.alone;
    }
    EXPECT_LE(sum.longer(), 0.055) << "steps of " << program.step << " ms, overrun "
                                   << program.overrun << ", neighbours for " << longest;
  }
}

// Prevents: a program whose slow steps are those without a window, so that windows seem to cost
// nothing.
TEST(StepLaw, PhasesInStepWithReferencesAreNoEvidence) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 100; ++i) {
    Program program{.step = 20, .noise = 0.005, .price = 0.05, .overrun = 0};
    Together run(random());
    run.run(program, 2000);  // windows that cost nothing are in all steps but the references
    program.price = 1;
    // Each of 15 periods has its slow steps at another place.
    const std::uint64_t factor = random() % 15;
    const std::uint64_t shift = random() % 240;
    for (std::uint64_t step = shift; step < shift + 240; ++step) {
      const std::uint64_t place = step / 16 * factor % 15;
      program.phases.push_back(step % 16 == place || step % 16 == place + 1 ? 1.4 : 1);
    }
    EXPECT_LE(run.run(program, 20'000).longer(), 0.06) << factor << ", " << shift;
  }
}

}  // namespace
}  // namespace sluice::intercept::test
