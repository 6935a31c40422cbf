#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace sluice::base {

/// Reads and parses a JSON file. Throws UsageError if the file is missing, unreadable or not JSON;
/// a syntax error has line and column.
[[nodiscard]] nlohmann::json parse_json_file(const std::string& file);

/// A value inside a JSON file, and its position. Every error names the file, the JSON path, what
/// was found and what is allowed. Holds references: the file name and the document must outlive the
/// node.
class JsonNode {
 public:
  JsonNode(const std::string& file, const nlohmann::json& value, std::string path = "")
      : file_(&file), value_(&value), path_(std::move(path)) {}

  /// Refuses anything except an object whose keys are all in `known`. Suggests the nearest known
  /// key.
  void expect_object(const std::vector<std::string>& known) const;

  /// A member of an object. If it is missing, find() returns nothing and member() throws.
  [[nodiscard]] std::optional<JsonNode> find(const std::string& key) const;
  [[nodiscard]] JsonNode member(const std::string& key) const;
  /// The elements of an array. `allowed` describes the expected array in the error for other
  /// values.
  [[nodiscard]] std::vector<JsonNode> elements(const std::string& allowed) const;

  [[nodiscard]] bool as_bool() const;
  /// A non-empty string.
  [[nodiscard]] std::string as_text() const;
  [[nodiscard]] std::int64_t as_integer(std::int64_t min, std::int64_t max) const;
  /// A number in [min, max], or in (min, max] if `above_min`.
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
