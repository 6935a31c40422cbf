#include "predictor/data/dataset.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <strings.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"

namespace sluice::predictor {

const Task& Dataset::task_of(const Query& query) const {
  return tasks[programs[query.program].task];
}

std::size_t Dataset::device(const std::string& name) const {
  const auto found = std::ranges::find_if(devices, [&](const std::string& known) {
    return strcasecmp(known.c_str(), name.c_str()) == 0;
  });
  if (found == devices.end()) {
    throw base::UsageError(fmt::format("no device '{}' in the data set, which has {}", name,
                                       fmt::join(devices, ", ")));
  }
  return static_cast<std::size_t>(found - devices.begin());
}

void keep_one_of_each_program(std::vector<Label>& labels, std::size_t most) {
  if (labels.size() <= most) return;
  std::set<std::size_t> seen;
  std::erase_if(labels,
                [&](const Label& label) { return !seen.insert(label.query.program).second; });
}

std::vector<Query> queries_of(std::span<const Label> labels) {
  std::vector<Query> queries;
  queries.reserve(labels.size());
  for (const Label& label : labels) queries.push_back(label.query);
  return queries;
}

std::map<std::size_t, std::vector<std::size_t>> by_task(const Dataset& data,
                                                        std::span<const Query> queries) {
  std::map<std::size_t, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    groups[data.programs[queries[i].program].task].push_back(i);
  }
  return groups;
}

}  // namespace sluice::predictor
