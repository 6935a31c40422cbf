#include "server/api/trace.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <random>

namespace sluice::server::api {
namespace {

/// `00-`, the trace's 32 digits, `-`, its parent's 16, `-`, 2 digits of flags.
constexpr std::size_t kTrace = 3;
constexpr std::size_t kParent = 36;
constexpr std::size_t kFlags = 53;
constexpr std::size_t kLength = 55;

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_id(std::string_view text) {
  return is_hex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

bool is_traceparent(std::string_view text) {
  // A later version may have more parts behind these.
  if (text.size() < kLength || (text.size() > kLength && text[kLength] != '-')) return false;
  if (text[2] != '-' || text[kParent - 1] != '-' || text[kFlags - 1] != '-') return false;
  const auto version = text.substr(0, 2);
  if (!is_hex(version) || version == "ff" || (version == "00" && text.size() > kLength))
    return false;
  return is_id(text.substr(kTrace, 32)) && is_id(text.substr(kParent, 16)) &&
         is_hex(text.substr(kFlags, 2));
}

std::uint64_t random_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return std::max<std::uint64_t>(random(), 1);
}

}  // namespace

std::string next_traceparent(std::string_view received) {
  if (!is_traceparent(received)) return "";
  std::array<char, 17> own{};
  std::snprintf(own.data(), own.size(), "%016llx", static_cast<unsigned long long>(random_id()));
  return "00-" + std::string(received.substr(kTrace, 32)) + "-" + own.data() + "-" +
         std::string(received.substr(kFlags, 2));
}

}  // namespace sluice::server::api
