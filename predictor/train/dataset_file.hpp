#pragma once
#include <string>

#include "predictor/data/dataset.hpp"

namespace sluice::predictor {

/// Writes dataset.pt: a dictionary of tensors that torch.load() reads, and the rest as JSON text.
void save_dataset(const std::string& file, const Dataset& data);

/// Throws base::UsageError if the file is missing or not of this version.
[[nodiscard]] Dataset load_dataset(const std::string& file);

}  // namespace sluice::predictor
