#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Tensors as requests and responses carry them: described bytes in host memory.
namespace sluice::engine {

/// The element types of the KServe v2 protocol.
enum class DataType : std::uint8_t {
  kBool,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFp16,
  kBf16,
  kFp32,
  kFp64,
  kBytes,  ///< Each element: its length in 4 bytes, little endian, and then that many bytes.
};

/// The protocol's name, such as "FP32".
[[nodiscard]] std::string_view to_string(DataType type);
[[nodiscard]] std::optional<DataType> parse_data_type(std::string_view name);
/// Bytes of an element; 0 for kBytes.
[[nodiscard]] std::size_t size_of(DataType type);

/// The number of elements; nothing if a dimension is negative or the product overflows 63 bits.
[[nodiscard]] std::optional<std::uint64_t> element_count(std::span<const std::int64_t> shape);

/// Checks that `data` holds exactly the elements of `shape`. Returns the fault, or an empty text.
[[nodiscard]] std::string check_data(DataType type, std::span<const std::int64_t> shape,
                                     std::span<const std::byte> data);

/// What a model takes or gives. The shape is that of one item, without the batch dimension; -1: any
/// size.
struct TensorSpec {
  std::string name;
  DataType type = DataType::kFp32;
  std::vector<std::int64_t> shape;
  /// The elements are ids from 0 that end before this one. Nothing: any values. Integers only.
  std::optional<std::int64_t> id_end{};
};

/// A tensor of a request or a response. The first dimension of the shape is the batch. Does not own
/// the data.
struct Tensor {
  std::string name;
  DataType type = DataType::kFp32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

/// Checks that the elements of `tensor` are ids that `spec` allows. Another id would read outside
/// of a table: on a GPU that costs the process its context. Returns the fault, or an empty text.
[[nodiscard]] std::string check_ids(const TensorSpec& spec, const Tensor& tensor);

}  // namespace sluice::engine
