#include "base/json_node.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/nearest.hpp"

namespace sluice::base {
namespace {

using nlohmann::json;

/// Line and column of a byte in the text, both from 1.
std::pair<std::size_t, std::size_t> line_and_column(const std::string& text, std::size_t byte) {
  std::size_t line = 1;
  std::size_t column = 1;
  for (std::size_t i = 0; i < byte && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return {line, column};
}

/// The part of a parser's message after its prefix, which is "[json.exception...] parse error at
/// line 1, column 2: ".
std::string reason_of(const std::string& message) {
  const std::size_t colon = message.find(": ");
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

std::string shown(const json& value) {
  constexpr std::size_t kLongest = 60;
  std::string text = json_text(value);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

/// A key with the escapes of a JSON pointer.
std::string escaped(const std::string& key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

json parse_json_file(const std::string& file) {
  if (std::filesystem::is_directory(file)) throw UsageError(file + ": is a folder, not a file");
  std::ifstream in(file);
  if (!in) throw UsageError(fmt::format("{}: cannot be read: {}", file, std::strerror(errno)));
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    const auto [line, column] = line_and_column(text, error.byte == 0 ? 0 : error.byte - 1);
    throw UsageError(fmt::format("{}: not JSON: line {}, column {}: {}", file, line, column,
                                 reason_of(error.what())));
  } catch (const json::exception& error) {
    throw UsageError(fmt::format("{}: not JSON: {}", file, error.what()));
  }
}

void JsonNode::expect_object(const std::vector<std::string>& known) const {
  if (!value_->is_object()) refuse("an object with " + fmt::format("{}", fmt::join(known, ", ")));
  for (const auto& item : value_->items()) {
    const std::string& key = item.key();
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const JsonNode child(*file_, item.value(), path_ + "/" + escaped(key));
    child.complain(with_remark("unknown key" + did_you_mean(key, known, '"'),
                               fmt::format("allowed: {}", fmt::join(known, ", "))));
  }
}

std::optional<JsonNode> JsonNode::find(const std::string& key) const {
  const auto found = value_->find(key);
  if (found == value_->end()) return std::nullopt;
  return JsonNode(*file_, *found, path_ + "/" + escaped(key));
}

JsonNode JsonNode::member(const std::string& key) const {
  const auto found = find(key);
  if (!found) complain(fmt::format("\"{}\" is missing", key));
  return *found;
}

std::vector<JsonNode> JsonNode::elements(const std::string& allowed) const {
  if (!value_->is_array()) refuse(allowed);
  std::vector<JsonNode> nodes;
  for (std::size_t i = 0; i < value_->size(); ++i) {
    nodes.emplace_back(*file_, (*value_)[i], path_ + "/" + std::to_string(i));
  }
  return nodes;
}

bool JsonNode::as_bool() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

std::string JsonNode::as_text() const {
  if (!value_->is_string() || value_->get_ref<const std::string&>().empty()) {
    refuse("a non-empty string");
  }
  return value_->get<std::string>();
}

std::int64_t JsonNode::as_integer(std::int64_t min, std::int64_t max) const {
  const std::string allowed = fmt::format("a whole number from {} to {}", min, max);
  if (!value_->is_number_integer()) refuse(allowed);
  const bool too_big = value_->is_number_unsigned() &&
                       value_->get<std::uint64_t>() >
                           static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (too_big) refuse(allowed);
  const auto number = value_->get<std::int64_t>();
  if (number < min || number > max) refuse(allowed);
  return number;
}

double JsonNode::as_number(double min, double max, bool above_min) const {
  const std::string allowed = fmt::format("a number {} {:g} and at most {:g}",
                                          above_min ? "above" : "of at least", min, max);
  if (!value_->is_number()) refuse(allowed);
  const auto number = value_->get<double>();
  const bool enough = above_min ? number > min : number >= min;
  if (!std::isfinite(number) || !enough || number > max) refuse(allowed);
  return number;
}

void JsonNode::refuse(const std::string& allowed) const {
  complain(fmt::format("found {}, allowed: {}", shown(*value_), allowed));
}

void JsonNode::complain(const std::string& message) const {
  throw UsageError(fmt::format("{}: {}: {}", *file_, path_.empty() ? "/" : path_, message));
}

}  // namespace sluice::base
