#include "engine/torch/image_file.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "base/error.hpp"
#include "engine/torch/torch_error.hpp"
#include "engine/torch/torchvision.hpp"

namespace sluice::engine {
namespace {

std::vector<char> read_bytes(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in) throw base::RunError(file + ": the input image cannot be read");
  return bytes;
}

at::Tensor decode(std::vector<char>& bytes) {
  constexpr std::int64_t kRgb = 3;  // ImageReadMode::RGB
  const auto data =
      at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, at::kByte);
  const auto decode_image = c10::Dispatcher::singleton()
                                .findSchemaOrThrow("image::decode_image", "")
                                .typed<at::Tensor(const at::Tensor&, std::int64_t, bool)>();
  return decode_image.call(data, kRgb, /*apply_exif_orientation=*/true);
}

}  // namespace

at::Tensor read_image(const std::string& file) {
  std::vector<char> bytes = read_bytes(file);
  load_image_operators();
  at::Tensor image;
  try {
    image = decode(bytes);
  } catch (const std::exception& error) {
    throw base::RunError(fmt::format(
        "{}: not an image that can be decoded (png, jpg, webp, gif): {}", file, one_line(error)));
  }
  if (image.dim() == 3 && image.size(0) == 3 && image.scalar_type() == at::kByte) return image;
  throw base::RunError(fmt::format(
      "{}: decoded to {} of {}, needed: a still image of 8 bits per channel, grey or RGB, with or "
      "without alpha",
      file, fmt::join(image.sizes(), "x"), c10::toString(image.scalar_type())));
}

}  // namespace sluice::engine
