#pragma once
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"

/// JSON as CBOR, with arrays of numbers as bytes, compressed by xz: small, and read in a moment.
/// Little-endian. Files that are not compressed are read too.
namespace sluice::predictor {

template <class Number>
[[nodiscard]] nlohmann::json as_binary(const std::vector<Number>& numbers) {
  std::vector<std::uint8_t> bytes(numbers.size() * sizeof(Number));
  if (!bytes.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return nlohmann::json::binary(std::move(bytes));
}

/// Throws base::UsageError if the value was not made by as_binary() of such numbers.
template <class Number>
[[nodiscard]] std::vector<Number> from_binary(const nlohmann::json& value) {
  if (!value.is_binary() || value.get_binary().size() % sizeof(Number) != 0) {
    throw base::UsageError("not numbers of the right size");
  }
  const auto& bytes = value.get_binary();
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

/// Writes `value` with a kind and a version. Throws base::RunError.
void write_binary(const std::filesystem::path& file, const char* kind, nlohmann::json value);

/// Gives the file's value to `take`. Throws base::UsageError if the file is not there or not of
/// this kind and version, or `take` throws a JSON exception or a base::UsageError; `remedy` says
/// what to do then.
void read_binary(const std::filesystem::path& file, const char* kind, const char* remedy,
                 const std::function<void(const nlohmann::json&)>& take);

}  // namespace sluice::predictor
