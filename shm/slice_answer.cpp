#include "shm/slice_answer.hpp"

#include <array>
#include <cstdio>

namespace sluice::shm {

const char* kind_name(SliceAnswer::Kind kind) noexcept {
  if (kind == SliceAnswer::Kind::kObeyed) return "obeyed";
  return kind == SliceAnswer::Kind::kNotObeyed ? "not obeyed" : "no answer yet";
}

std::string answer_text(SliceAnswer answer) {
  if (answer.kind != SliceAnswer::Kind::kObeyed) return kind_name(answer.kind);
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "obeyed (%.2f ms)", answer.short_us / 1e3);
  return text.data();
}

}  // namespace sluice::shm
