#pragma once
#include "profiler/tuner/tuner.hpp"

namespace sluice::profiler {

/// The tuners xgb, xgb-rank, xgb_itervar, xgb_knob and xgb_curve: trees learn the speed of measured
/// programs, simulated annealing searches the space for what they rate best.
[[nodiscard]] std::unique_ptr<Tuner> make_xgb_tuner(const std::string& name,
                                                    const TunerNeeds& needs);

}  // namespace sluice::profiler
