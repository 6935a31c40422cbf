#include "engine/torch/input.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "base/error.hpp"
#include "engine/torch/image_file.hpp"

namespace sluice::engine {
namespace {

using Size = std::pair<std::int64_t, std::int64_t>;

constexpr Size kSyntheticDetectionSize{720, 1280};
constexpr std::uint64_t kSeed = 1;

bool synthetic(const ModelSpec& model) {
  return model.input_file_path.empty() || model.input_file_path == "synthetic";
}

/// Token ids that are valid in every vocabulary in use.
at::Tensor synthetic_text(const StoredModel& stored, const at::Generator& random) {
  constexpr std::int64_t kTokens = 1000;
  return at::randint(kTokens, stored.input, random, at::TensorOptions().dtype(at::kLong));
}

/// The size that the model expects; nothing if the image keeps its size.
std::optional<Size> wanted_size(const ModelSpec& model, const StoredModel& stored) {
  if (model.resize) return Size{model.resize->first, model.resize->second};
  if (stored.input.at(1) > 0 && stored.input.at(2) > 0) {
    return Size{stored.input[1], stored.input[2]};
  }
  return std::nullopt;
}

at::Tensor scale(const at::Tensor& image, const Size& size) {
  if (image.size(1) == size.first && image.size(2) == size.second) return image;
  return at::_upsample_bilinear2d_aa(image.unsqueeze(0), {size.first, size.second},
                                     /*align_corners=*/false)
      .squeeze(0);
}

/// The normalisation of torchvision's presets for classification and segmentation. Detection models
/// normalise inside.
at::Tensor normalise(const at::Tensor& image) {
  const auto mean = at::tensor({0.485F, 0.456F, 0.406F}).view({3, 1, 1});
  const auto deviation = at::tensor({0.229F, 0.224F, 0.225F}).view({3, 1, 1});
  return (image - mean) / deviation;
}

/// Returns [3, height, width] with values from 0 to 1.
at::Tensor make_image(const ModelSpec& model, const StoredModel& stored,
                      const at::Generator& random) {
  if (stored.input.size() != 3 || stored.input[0] != 3) {
    throw base::RunError(fmt::format("{} takes no image of three channels", stored.file));
  }
  const auto size = wanted_size(model, stored);
  if (synthetic(model)) {
    const auto [height, width] = size.value_or(kSyntheticDetectionSize);
    return at::rand({3, height, width}, random);
  }
  const at::Tensor image = read_image(model.input_file_path).to(at::kFloat).div(255);
  return size ? scale(image, *size) : image;
}

at::ScalarType type_of(const StoredModel& stored) {
  if (stored.dtype == "float32") return at::kFloat;
  if (stored.dtype == "float16") return at::kHalf;
  if (stored.dtype == "bfloat16") return at::kBFloat16;
  throw base::RunError(
      fmt::format("{}: cannot make an input of type {}", stored.file, stored.dtype));
}

}  // namespace

at::Tensor make_input(const ModelSpec& model, const StoredModel& stored, const at::Device& device) {
  const auto random = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  at::Tensor item;
  if (stored.task == "text") {
    if (!synthetic(model)) {
      throw base::RunError(model.model_name + " takes text: set input_file_path to \"synthetic\"");
    }
    item = synthetic_text(stored, random);
  } else {
    item = make_image(model, stored, random);
    if (stored.task != "detection") item = normalise(item);
    item = item.to(type_of(stored));
  }
  std::vector<std::int64_t> repeats(static_cast<std::size_t>(item.dim()) + 1, 1);
  repeats[0] = model.batch_size;
  return item.unsqueeze(0).repeat(repeats).to(device);
}

}  // namespace sluice::engine
