#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace sluice::base {

/// Reads and parses a JSON file. Throws UsageError: missing, not readable, not JSON (with line
/// and column).
[[nodiscard]] nlohmann::json parse_json_file(const std::string& file);

/// A value inside a JSON file together with where it stands, so that every complaint names file,
/// JSON path, what was found and what is allowed. Holds references: the file name and the document
/// must outlive it.
class JsonNode {
 public:
  JsonNode(const std::string& file, const nlohmann::json& value, std::string path = "")
      : file_(&file), value_(&value), path_(std::move(path)) {}

  /// Refuses anything but an object whose keys are all among `known`; names the nearest known key.
  void expect_object(const std::vector<std::string>& known) const;

  /// Member of an object; nothing, or an error in member(), if it is missing.
  [[nodiscard]] std::optional<JsonNode> find(const std::string& key) const;
  [[nodiscard]] JsonNode member(const std::string& key) const;
  /// Elements of an array; `allowed` describes the array in the error for anything else.
  [[nodiscard]] std::vector<JsonNode> elements(const std::string& allowed) const;

  [[nodiscard]] bool as_bool() const;
  /// A text, not empty.
  [[nodiscard]] std::string as_text() const;
  [[nodiscard]] std::int64_t as_integer(std::int64_t min, std::int64_t max) const;
  /// A number in [min, max]; with `above_min` in (min, max].
  [[nodiscard]] double as_number(double min, double max, bool above_min = false) const;

  /// Throws the UsageError `FILE: PATH: found ..., allowed: ...`.
  [[noreturn]] void refuse(const std::string& allowed) const;
  /// Throws the UsageError `FILE: PATH: MESSAGE`.
  [[noreturn]] void complain(const std::string& message) const;

  [[nodiscard]] const nlohmann::json& value() const { return *value_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  const std::string* file_;
  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace sluice::base
