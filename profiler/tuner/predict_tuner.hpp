#pragma once
#include "profiler/tuner/tuner.hpp"

namespace sluice::profiler {

/// The tuner predict: a predictor that was trained before rates programs. It learns nothing from
/// what is measured, except where to search. Throws base::RunError without `needs.predicted`.
[[nodiscard]] std::unique_ptr<Tuner> make_predict_tuner(const TunerNeeds& needs);

}  // namespace sluice::profiler
