#pragma once
#include <span>
#include <string>

#include "server/api/refusal.hpp"

/// Short words for the tests of the codecs.
namespace sluice::test {

/// The message of the refusal, or an empty text.
template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const server::api::Refusal& refused) {
    return refused.status.message;
  }
  return "";
}

template <typename... Value>
std::string bytes_of(Value... values) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&values), sizeof(values)), ...);
  return bytes;
}

inline std::string text_of(std::span<const std::byte> data) {
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

}  // namespace sluice::test
