#include "shm/labels.hpp"

#include <algorithm>

#include "shm/board.hpp"

namespace sluice::shm {
namespace {

// Not isalnum(), which depends on the locale.
bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Keys become names of Prometheus labels (after "label_"), which allow no other characters.
bool is_key(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_word_character);
}

bool is_value(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_word_character(c) || std::string_view(".-/:@").find(c) != std::string_view::npos;
  });
}

bool has_key(const Labels& labels, std::string_view key) {
  return std::any_of(labels.begin(), labels.end(), [&](const auto& l) { return l.first == key; });
}

/// Calls `visit(part, key, value)` for each part between commas. The key of a part without '=' is
/// empty.
template <class Visit>
void for_each_part(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view value = part.substr(std::min(equals + 1, part.size()));
    visit(part, equals == part.size() ? std::string_view() : part.substr(0, equals), value);
    const bool more = part.size() < text.size();
    text.remove_prefix(part.size() + (more ? 1 : 0));
    if (more && text.empty()) visit(text, text, text);  // a comma at the end
  }
}

}  // namespace

std::string check_labels(const std::string& text) {
  Labels seen;
  std::string fault;
  for_each_part(text, [&](std::string_view part, std::string_view key, std::string_view value) {
    if (!fault.empty()) return;
    if (!is_key(key) || !is_value(value)) {
      fault = "'" + std::string(part) + "' is not a label: " + std::string(kLabelForm);
    } else if (has_key(seen, key)) {
      fault = "the label " + std::string(key) + " is given twice";
    }
    seen.emplace_back(key, value);
  });
  if (fault.empty() && text.size() >= kLabelSize) {
    fault = "the labels are too long: " + std::to_string(text.size()) + " bytes, at most " +
            std::to_string(kLabelSize - 1) + " in all";
  }
  return fault;
}

Labels parse_labels(std::string_view text) {
  Labels labels;
  for_each_part(text, [&](std::string_view, std::string_view key, std::string_view value) {
    if (is_key(key) && is_value(value) && !has_key(labels, key)) labels.emplace_back(key, value);
  });
  return labels;
}

std::string with_label(const std::string& text, const std::string& key, const std::string& value) {
  if (!is_key(key) || !is_value(value)) return text;  // a comma would begin a label of its own
  std::string longer = text;
  if (!longer.empty()) longer += ',';
  longer += key + "=" + value;
  return check_labels(longer).empty() ? longer : text;
}

}  // namespace sluice::shm
