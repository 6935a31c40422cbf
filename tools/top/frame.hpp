#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "tools/top/view.hpp"

namespace sluice::tools {

enum class Style { kPlain, kTitle, kHeader, kActive, kHeld, kWarning, kFaint };

/// One line, filled to the width of its frame.
struct Line {
  std::string text;
  Style style = Style::kPlain;
};
using Frame = std::vector<Line>;

struct FrameSize {
  std::size_t columns = 80;
  std::size_t rows = 0;  ///< 0: as many as there are clients.
};

/// The whole picture, never larger than `size`. Lines stay where they are from one look to the
/// next: what comes and goes stands below the clients.
[[nodiscard]] Frame make_frame(const View& view, const std::string& session, FrameSize size);

/// In place of it while there is nothing to show.
[[nodiscard]] Frame make_message(const std::string& session, const std::string& why,
                                 FrameSize size);

/// For pipes: without the spaces at the ends of lines.
[[nodiscard]] std::string plain_text(const Frame& frame);

}  // namespace sluice::tools
