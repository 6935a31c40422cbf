#include <gtest/gtest.h>

#include <chrono>
#include <iostream>

#include "tests/protocol/parts.hpp"
#include "tests/protocol/scenarios.hpp"

namespace sluice::protocol {

/// GoogleTest would otherwise print the bytes.
void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

namespace {

class Protocol : public testing::TestWithParam<Scenario> {};

// Every interleaving keeps the invariant of shm/gates.hpp, and ends.
TEST_P(Protocol, HoldsInEveryInterleaving) {
  const auto start = std::chrono::steady_clock::now();
  const Result result = explore(with_tick(GetParam()));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::cout << GetParam().name << ": " << result.states << " states, " << result.steps << " steps, "
            << result.ends << " end states, " << took.count() << " s\n";
  EXPECT_FALSE(result.violation) << *result.violation;
  EXPECT_GT(result.ends, 0U);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, Protocol, testing::ValuesIn(all_scenarios()),
                         [](const auto& scenario) { return scenario.param.name; });

}  // namespace
}  // namespace sluice::protocol
