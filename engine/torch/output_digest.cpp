#include "engine/torch/output_digest.hpp"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

namespace sluice::engine {
namespace {

/// FNV-1a, 64 bits.
class Hash {
 public:
  void add(const void* data, std::size_t size) {
    constexpr std::uint64_t kPrime = 0x100000001b3;
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < size; ++i) value_ = (value_ ^ bytes[i]) * kPrime;
  }
  void add(std::int64_t number) { add(&number, sizeof(number)); }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

void add(const at::Tensor& tensor, Hash& hash) {
  const at::Tensor here = tensor.detach().to(at::kCPU).contiguous();
  hash.add(static_cast<std::int64_t>(here.scalar_type()));
  for (const std::int64_t side : here.sizes()) hash.add(side);
  hash.add(here.const_data_ptr(), here.nbytes());
}

void add(const c10::IValue& value, Hash& hash) {
  if (value.isTensor()) {
    add(value.toTensor(), hash);
  } else if (value.isTuple()) {
    for (const auto& element : value.toTupleRef().elements()) add(element, hash);
  } else if (value.isList()) {
    for (const auto& element : value.toListRef()) add(element, hash);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) add(entry.value(), hash);
  }
}

}  // namespace

std::string digest_of(const c10::IValue& outputs) {
  Hash hash;
  add(outputs, hash);
  return fmt::format("{:016x}", hash.value());
}

}  // namespace sluice::engine
