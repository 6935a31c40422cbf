// In a build without XGBoost.
#include "base/error.hpp"
#include "profiler/tuner/trees.hpp"
#include "profiler/tuner/xgb_tuner.hpp"

namespace sluice::profiler {

bool has_xgboost() { return false; }

struct Trees::Booster {};

Trees::Trees(std::string objective, std::uint64_t seed)
    : objective_(std::move(objective)), seed_(seed) {
  throw base::RunError(
      "built without XGBoost, which the xgb tuners need: install libxgboost-dev and build again, "
      "or "
      "use ga");
}
Trees::~Trees() = default;
void Trees::fit(const Rows&, const std::vector<float>&, int) {}
std::vector<float> Trees::predict(const Rows&) const { return {}; }

}  // namespace sluice::profiler
