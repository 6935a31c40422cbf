// The text of --help in lines that no terminal breaks.
#pragma once

#include <cstddef>
#include <string>

namespace sluice::base {

/// `text` with lines of at most `columns`, broken between words, so that a terminal breaks none.
/// What goes on below an option is indented like its description. Lines that have no blank to break
/// at stay long.
std::string wrapped_help(const std::string& text, std::size_t columns);

/// Prints the text of --help for the terminal, or the pipe, that standard output is.
void print_help(const std::string& text);

}  // namespace sluice::base
