#pragma once
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

}  // namespace sluice::test
