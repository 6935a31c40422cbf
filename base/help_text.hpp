// The text of --help in a narrow terminal.
#pragma once

#include <cstddef>
#include <string>

namespace sluice::base {

/// `text` with lines of at most `columns`, broken between words, so that a terminal breaks none.
/// What goes on below an option is indented like its description. Lines that have no blank to break
/// at stay long.
std::string wrapped_help(const std::string& text, std::size_t columns);

}  // namespace sluice::base
