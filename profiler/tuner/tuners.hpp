#pragma once
#include "profiler/tuner/tuner.hpp"

namespace sluice::profiler {

/// The names that make_tuner() takes.
[[nodiscard]] const std::vector<std::string>& tuner_names();

/// Throws base::UsageError for an unknown name, and base::RunError if this build lacks what the
/// tuner needs.
[[nodiscard]] std::unique_ptr<Tuner> make_tuner(const std::string& name, const TunerNeeds& needs);

}  // namespace sluice::profiler
