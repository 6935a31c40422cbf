#include "base/help_text.hpp"

#include <algorithm>
#include <iostream>
#include <sstream>

#include "base/terminal.hpp"

namespace sluice::base {
namespace {

/// Of help that goes into a pipe or a file, where COLUMNS may give another width.
constexpr std::size_t kColumns = 80;

/// Where the description of an option or a command begins: behind its name and two blanks or more.
/// For other lines, where their text begins.
std::size_t indent_of(const std::string& line) {
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t gap = begin == 0 ? std::string::npos : line.find("  ", begin);
  if (gap == std::string::npos) return begin;
  return line.find_first_not_of(' ', gap);
}

void append_wrapped(std::string& out, std::string line, std::size_t columns) {
  const std::size_t least = columns / 4;
  std::size_t indent = indent_of(line);
  if (indent == std::string::npos || indent > columns - least) indent = least;
  std::size_t from = std::max(indent, line.find_first_not_of(' '));
  while (line.size() > columns) {
    std::size_t at = line.rfind(' ', columns);
    if (at == std::string::npos || at <= from) at = line.find(' ', columns);
    if (at == std::string::npos) break;
    out.append(line, 0, line.find_last_not_of(' ', at) + 1).push_back('\n');
    line = std::string(indent, ' ') + line.substr(line.find_first_not_of(' ', at));
    from = indent;
  }
  out += line;
}

}  // namespace

std::string wrapped_help(const std::string& text, std::size_t columns) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line.resize(line.find_last_not_of(' ') + 1);
    append_wrapped(out, line, columns);
    out.push_back('\n');
  }
  return out;
}

void print_help(const std::string& text) {
  std::cout << wrapped_help(text, terminal_columns().value_or(kColumns)) << '\n';
}

}  // namespace sluice::base
