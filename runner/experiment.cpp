#include "runner/experiment.hpp"

#include <filesystem>

namespace sluice::runner {

std::string Model::display_name() const {
  return resize ? model_name + "_" + std::to_string(resize->first) : model_name;
}

std::string Model::output_file(const std::string& suffix) const {
  return std::filesystem::path(output_file_path) / (output_file_name + suffix);
}

}  // namespace sluice::runner
