#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>

#include "tests/protocol/parts.hpp"
#include "tests/protocol/scenarios.hpp"

namespace sluice::protocol {
namespace {

/// Explores one scenario and prints one line about it.
Result check(const Scenario& scenario) {
  const auto start = std::chrono::steady_clock::now();
  Result result = explore(with_tick(scenario));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("%-32s %9llu states %10llu steps %3llu ends %6.2f s%s\n", scenario.name.c_str(),
              static_cast<unsigned long long>(result.states),
              static_cast<unsigned long long>(result.steps),
              static_cast<unsigned long long>(result.ends), took.count(),
              result.violation ? "  VIOLATED" : "");
  std::fflush(stdout);
  return result;
}

/// Returns 0 if some scenario finds a violation. Explores only the first states of every scenario
/// at first, because most violations appear early.
int expect_violation() {
  for (const std::size_t most : {5'000U, 100'000U, 4'000'000U}) {
    for (const Scenario& scenario : all_scenarios()) {
      const Result result = explore(with_tick(scenario), {.max_states = most});
      if (!result.violation || result.too_large) continue;
      std::printf("%s", result.violation->c_str());
      return 0;
    }
  }
  std::printf("no scenario found a violation\n");
  return 1;
}

}  // namespace
}  // namespace sluice::protocol

/// `protocol_check [NAME...]` explores all or the named scenarios and returns 0 if all hold.
/// `protocol_check --violated`, built with a mutated gates.hpp, returns 0 if one does not hold.
int main(int argc, char** argv) {
  using namespace sluice::protocol;
  if (argc == 2 && std::string_view(argv[1]) == "--violated") return expect_violation();
  const std::vector<Scenario> scenarios = all_scenarios();
  for (int i = 1; i < argc; ++i) {
    const bool known =
        std::any_of(scenarios.begin(), scenarios.end(),
                    [&](const Scenario& scenario) { return scenario.name == argv[i]; });
    if (known) continue;
    // A run that explores nothing must not look like a proof.
    std::fprintf(stderr,
                 "protocol_check: there is no scenario %s; without a name it explores all\n",
                 argv[i]);
    return 2;
  }
  int failed = 0;
  std::uint64_t states = 0;
  for (const Scenario& scenario : scenarios) {
    bool named = argc == 1;
    for (int i = 1; i < argc; ++i) named = named || scenario.name == argv[i];
    if (!named) continue;
    const Result result = check(scenario);
    states += result.states;
    if (!result.violation) continue;
    std::printf("%s", result.violation->c_str());
    failed = 1;
  }
  std::printf("%llu states\n", static_cast<unsigned long long>(states));
  return failed;
}
