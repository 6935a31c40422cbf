#pragma once
#include <string>

#include "predictor/data/dataset.hpp"

namespace sluice::predictor {

/// Writes a data set into one file. Throws base::RunError.
void save_dataset(const std::string& file, const Dataset& data);

/// Throws base::UsageError if there is no such file, or it is of another version.
[[nodiscard]] Dataset load_dataset(const std::string& file);

}  // namespace sluice::predictor
