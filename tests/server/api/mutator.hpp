#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

namespace sluice::test {

/// Damages valid inputs, as a fuzzer does. The same seed gives the same inputs.
class Mutator {
 public:
  Mutator(std::vector<std::string> corpus, std::uint64_t seed);

  /// One of the corpus, after one to eight changes.
  std::string next();
  /// Below `limit`, which is not 0.
  std::size_t below(std::size_t limit);

 private:
  void change(std::string& text);
  const std::string& one_of(const std::vector<std::string>& list) {
    return list[below(list.size())];
  }

  std::vector<std::string> corpus_;
  std::mt19937_64 random_;
};

/// Calls `once` for a sixth of SLUICE_FUZZ_SECONDS (10 by default), since there are six tests.
/// SLUICE_FUZZ_SEED repeats a run.
template <typename Once>
void fuzz(const std::vector<std::string>& corpus, Once once) {
  const auto number = [](const char* variable, std::uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
  };
  const auto seed = number("SLUICE_FUZZ_SEED", std::random_device()());
  const std::chrono::milliseconds sixth(1000 * number("SLUICE_FUZZ_SECONDS", 10) / 6);
  const auto end = std::chrono::steady_clock::now() + sixth;
  Mutator mutator(corpus, seed);
  std::uint64_t count = 0;
  for (; std::chrono::steady_clock::now() < end; ++count) once(mutator);
  std::cout << count << " inputs, SLUICE_FUZZ_SEED=" << seed << std::endl;
  EXPECT_GT(count, 0U);
}

}  // namespace sluice::test
