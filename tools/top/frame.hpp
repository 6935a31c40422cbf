#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "tools/top/controls.hpp"

namespace sluice::tools {

enum class Style { kPlain, kTitle, kHeader, kActive, kHeld, kWarning, kFaint };

/// One line, as wide as its frame.
struct Line {
  std::string text;
  Style style = Style::kPlain;
  bool selected = false;
};
using Frame = std::vector<Line>;

struct FrameSize {
  std::size_t columns = 80;
  std::size_t rows = 0;  ///< 0: no limit.
};

/// The whole picture, never larger than `size`. A line that comes and goes is below the clients, so
/// that the clients stay in their place.
[[nodiscard]] Frame make_frame(const View& view, const std::string& session, FrameSize size,
                               const Controls& controls = {});

/// The picture while there is no session.
[[nodiscard]] Frame make_message(const std::string& session, const std::string& why,
                                 FrameSize size);

/// The picture for a pipe, without spaces at the ends of lines.
[[nodiscard]] std::string plain_text(const Frame& frame);

}  // namespace sluice::tools
