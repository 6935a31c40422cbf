// In a build without XGBoost.
#include "base/built_without.hpp"
#include "profiler/tuner/trees.hpp"

namespace sluice::profiler {

bool has_xgboost() { return false; }

struct Trees::Booster {};

Trees::Trees() { throw base::built_without("XGBoost", "sudo apt-get install libxgboost-dev"); }
Trees::~Trees() = default;
void Trees::fit(const Table&, const std::vector<float>&, const std::vector<float>&,
                const Parameters&, int) {}
std::vector<float> Trees::predict(const Table&) const { return {}; }

}  // namespace sluice::profiler
