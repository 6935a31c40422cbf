#include "mutator.hpp"

#include <algorithm>
#include <utility>

namespace sluice::test {
namespace {

using namespace std::string_literals;

/// What damages numbers, JSON, headers and protobuf most.
const std::vector<std::string> kTokens = {
    "0",
    "-1",
    "1e999",
    "9223372036854775807",
    "18446744073709551615",
    "null",
    "true",
    "{}",
    "[]",
    "[[[[[[[[",
    "}",
    "]",
    ",",
    "\"",
    "\\u0000",
    "\xff\xfe",
    "\r\n",
    "\r\n\r\n",
    ":",
    "/",
    "%2f",
    "%00",
    "\"shape\":[4611686018427387904,4]",
    "\"datatype\":\"BYTES\"",
    "\"data\":",
    "\0"s,
    "\xff\xff\xff\xff\x0f"s,
    "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s,
    "\x2a\x00"s,
    "\x3a\x00"s,
    "\x80"s,
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Expect: 100-continue\r\n",
    "Inference-Header-Content-Length: 3\r\n",
    "HTTP/1.0",
    "POST ",
    "binary_data_size",
};

}  // namespace

Mutator::Mutator(std::vector<std::string> corpus, std::uint64_t seed)
    : corpus_(std::move(corpus)), random_(seed) {}

std::size_t Mutator::below(std::size_t limit) {
  return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random_);
}

std::string Mutator::next() {
  std::string text = one_of(corpus_);
  for (std::size_t left = below(8) + 1; left > 0; --left) change(text);
  return text;
}

void Mutator::change(std::string& text) {
  const std::size_t at = below(text.size() + 1);
  const std::size_t size = std::min(text.size() - at, below(16) + 1);
  switch (below(8)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
      break;
    case 1:
      if (at < text.size()) text[at] = static_cast<char>(below(256));
      break;
    case 2:
      text.erase(at, size);
      break;
    case 3:
      text.insert(at, text.substr(at, size));
      break;
    case 4:
      text.insert(at, one_of(kTokens));
      break;
    case 5:
      text.replace(at, size, one_of(kTokens));
      break;
    case 6: {
      const std::string& other = one_of(corpus_);
      text = text.substr(0, at) + other.substr(below(other.size() + 1));
      break;
    }
    default:
      if (below(4) == 0) text.resize(at);
  }
}

}  // namespace sluice::test
