#include "base/error.hpp"
#include "predictor/baselines/model.hpp"

namespace sluice::predictor {

std::unique_ptr<LatencyModel> make_xgboost(std::uint64_t /*seed*/) {
  throw base::RunError("built without XGBoost; install libxgboost-dev, then build again");
}

std::unique_ptr<LatencyModel> make_ratio(std::uint64_t seed) { return make_xgboost(seed); }

}  // namespace sluice::predictor
