// The dashboard and the manual against the metrics page. tests/metrics/dashboard.sh fills the
// dashboard by a real Prometheus.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "controller/exposition.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::test {
namespace {

/// The family heads of the page, which are there without a client too.
std::set<std::string> families() {
  const auto board = std::make_unique<shm::Board>();
  const std::string page = controller::exposition(*board, controller::Tally(), 0);
  std::set<std::string> names;
  static const std::regex kType(R"(# TYPE (\w+) )");
  for (std::sregex_iterator at(page.begin(), page.end(), kType), end; at != end; ++at) {
    names.insert((*at)[1]);
  }
  return names;
}

/// The family of a series of a histogram.
std::string family_of(const std::string& series) {
  static const std::regex kPart("(_duration_seconds)_(bucket|sum|count)$");
  return std::regex_replace(series, kPart, "$1");
}

// Prevents: a panel that is empty for good after a metric was renamed.
TEST(Dashboard, EveryMetricItUsesExists) {
  const auto dashboard =
      nlohmann::json::parse(read_file(SLUICE_TEST_SOURCE "/docs/data/grafana-dashboard.json"));
  const std::set<std::string> known = families();
  static const std::regex kName(R"(sluice_\w+)");
  std::size_t used = 0;
  for (const auto& panel : dashboard["panels"]) {
    for (const auto& target : panel["targets"]) {
      const auto query = target["expr"].get<std::string>();
      for (std::sregex_iterator at(query.begin(), query.end(), kName), end; at != end; ++at) {
        EXPECT_TRUE(known.contains(family_of(at->str()))) << at->str() << " in " << query;
        ++used;
      }
    }
  }
  EXPECT_GE(used, 8U);
}

TEST(Dashboard, TheManualListsEveryMetric) {
  const std::string manual = read_file(SLUICE_TEST_SOURCE "/docs/reference/controller.md");
  for (const std::string& name : families()) {
    EXPECT_TRUE(std::regex_search(manual, std::regex("`" + name + "[`{]"))) << name;
  }
}

}  // namespace
}  // namespace sluice::test
