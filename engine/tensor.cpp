#include "engine/tensor.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace sluice::engine {
namespace {

struct Type {
  std::string_view name;
  std::size_t bytes;
};

// In the order of DataType.
constexpr std::array kTypes{
    Type{"BOOL", 1}, Type{"UINT8", 1}, Type{"UINT16", 2}, Type{"UINT32", 4}, Type{"UINT64", 8},
    Type{"INT8", 1}, Type{"INT16", 2}, Type{"INT32", 4},  Type{"INT64", 8},  Type{"FP16", 2},
    Type{"BF16", 2}, Type{"FP32", 4},  Type{"FP64", 8},   Type{"BYTES", 0},
};

std::string check_bytes_elements(std::uint64_t count, std::span<const std::byte> data) {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t length = 0;
    if (data.size() < sizeof(length)) {
      return "the data ends after " + std::to_string(i) + " of " + std::to_string(count) +
             " elements";
    }
    std::memcpy(&length, data.data(), sizeof(length));
    data = data.subspan(sizeof(length));
    if (data.size() < length) {
      return "element " + std::to_string(i) + " has length " + std::to_string(length) +
             ", but only " + std::to_string(data.size()) + " bytes follow";
    }
    data = data.subspan(length);
  }
  if (data.empty()) return "";
  return std::to_string(data.size()) + " bytes follow the last of " + std::to_string(count) +
         " elements";
}

template <typename Id>
std::string check_ids_of(std::int64_t end, std::span<const std::byte> data) {
  for (std::size_t at = 0; at + sizeof(Id) <= data.size(); at += sizeof(Id)) {
    Id id = 0;
    // The data of a request may begin at any address.
    std::memcpy(&id, &data[at], sizeof(id));
    if (id >= 0 && id < end) continue;
    return "found id " + std::to_string(id) + ", allowed: 0 to " + std::to_string(end - 1);
  }
  return "";
}

/// Compilers take a bool for 0 or 1. Another byte in an index reads outside of a table.
std::string check_bools(std::span<const std::byte> data) {
  const auto wrong =
      std::ranges::find_if(data, [](std::byte value) { return value > std::byte{1}; });
  if (wrong == data.end()) return "";
  return "found the byte " + std::to_string(std::to_integer<int>(*wrong)) +
         " in a BOOL tensor, allowed: 0 and 1";
}

}  // namespace

std::string_view to_string(DataType type) { return kTypes.at(static_cast<std::size_t>(type)).name; }

std::optional<DataType> parse_data_type(std::string_view name) {
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes.at(i).name == name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

std::size_t size_of(DataType type) { return kTypes.at(static_cast<std::size_t>(type)).bytes; }

std::optional<std::uint64_t> element_count(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) {
      empty = true;
      continue;
    }
    if (__builtin_mul_overflow(count, size, &count)) return std::nullopt;
  }
  return empty ? 0 : static_cast<std::uint64_t>(count);
}

std::string check_data(DataType type, std::span<const std::int64_t> shape,
                       std::span<const std::byte> data) {
  const auto count = element_count(shape);
  if (!count) return "the shape has a negative dimension or too many elements";
  if (type == DataType::kBytes) return check_bytes_elements(*count, data);
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(*count, size_of(type), &bytes)) {
    return "the shape has too many elements";
  }
  if (bytes == data.size()) return type == DataType::kBool ? check_bools(data) : "";
  return "found " + std::to_string(data.size()) + " bytes, expected " + std::to_string(bytes);
}

std::string check_ids(const TensorSpec& spec, const Tensor& tensor) {
  if (!spec.id_end) return "";
  switch (tensor.type) {
    case DataType::kUint8:
      return check_ids_of<std::uint8_t>(*spec.id_end, tensor.data);
    case DataType::kInt8:
      return check_ids_of<std::int8_t>(*spec.id_end, tensor.data);
    case DataType::kInt16:
      return check_ids_of<std::int16_t>(*spec.id_end, tensor.data);
    case DataType::kInt32:
      return check_ids_of<std::int32_t>(*spec.id_end, tensor.data);
    case DataType::kInt64:
      return check_ids_of<std::int64_t>(*spec.id_end, tensor.data);
    default:
      return "ids cannot be of type " + std::string(to_string(tensor.type));
  }
}

}  // namespace sluice::engine
