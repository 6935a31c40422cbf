#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "profiler/records/pair_record.hpp"

/// `sluice opbench pairs`: two programs at once.
namespace sluice::profiler {

struct PairOptions {
  std::vector<std::string> packs;
  std::string records = "records.jsonl";  ///< Times of the programs alone, for the choice.
  std::string out = "pairs.jsonl";
  std::string kind = "stream";
  std::size_t pairs = 400;
  double least_us = 30;  ///< Programs that take between these two times.
  double most_us = 1000;
  int device = 0;
  std::uint64_t seed = 0;
  std::size_t jobs = 1;
  double compile_limit_s = 10;
  double limit_s = 0;  ///< No pair is begun later; 0: no limit.
};

struct PairCounts {
  std::size_t good = 0;
  std::size_t disturbed = 0;
  std::size_t failed = 0;
  std::size_t known = 0;
  std::size_t left = 0;
};

/// At most `count` different pairs of `programs`, in a random order that `seed` fixes. Fewer are
/// the beginning of more.
[[nodiscard]] std::vector<std::array<std::size_t, 2>> choose_pairs(std::size_t programs,
                                                                   std::size_t count,
                                                                   std::uint64_t seed);

/// The fastest program of each task on `device` that takes between the two times, by task id.
[[nodiscard]] std::map<std::string, Record> fastest_between(const std::vector<Record>& records,
                                                            const std::string& device,
                                                            double least_s, double most_s);

/// Measures pairs into options.out, without those that are there already.
PairCounts measure_pairs(const PairOptions& options);

}  // namespace sluice::profiler
