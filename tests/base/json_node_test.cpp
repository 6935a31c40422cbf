#include "base/json_node.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::base {
namespace {

using nlohmann::json;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

// Prevents: 2^63 read as a negative number, and a fraction cut off.
TEST(JsonNode, IntegersAreRefusedNotBent) {
  const std::string file = "f";
  for (const char* text : {"9223372036854775808", "18446744073709551615", "1.5", "1e3", "\"1\""}) {
    const json value = json::parse(text);
    EXPECT_THROW((void)JsonNode(file, value)
                     .as_integer(std::numeric_limits<std::int64_t>::min(),
                                 std::numeric_limits<std::int64_t>::max()),
                 UsageError)
        << text;
  }
}

TEST(JsonNode, BoundsBelongToTheRange) {
  const std::string file = "f";
  const json zero = 0;
  const json two = 2.0;
  EXPECT_EQ(JsonNode(file, zero).as_integer(0, 0), 0);
  EXPECT_EQ(JsonNode(file, zero).as_number(0, 2), 0);
  EXPECT_EQ(JsonNode(file, two).as_number(0, 2), 2);
  EXPECT_EQ(error_of([&] { (void)JsonNode(file, zero).as_number(0, 2, true); }),
            "f: /: found 0, allowed: a number above 0 and at most 2");
}

// Prevents: an error that names no place, or a wrong one.
TEST(JsonNode, ErrorsNameTheJsonPath) {
  const std::string file = "f";
  const json document = {{"a/b", {1, {{"~", true}}}}};
  const JsonNode node = JsonNode(file, document).member("a/b").elements("").at(1).member("~");
  EXPECT_EQ(error_of([&] { (void)node.as_text(); }),
            "f: /a~1b/1/~0: found true, allowed: a non-empty string");
}

TEST(ParseJsonFile, SaysInWhichLineAndColumn) {
  const test::TempFolder folder;
  const std::string file = folder.write("f.json", "{\n  \"a\": 1,\n  b\n}");
  EXPECT_NE(error_of([&] { (void)parse_json_file(file); }).find("not JSON: line 3, column 3"),
            std::string::npos)
      << error_of([&] { (void)parse_json_file(file); });
  EXPECT_EQ(error_of([&] { (void)parse_json_file(folder.path()); }),
            folder.path().string() + ": is a folder, not a file");
}

}  // namespace
}  // namespace sluice::base
