#include "server/api/compression.hpp"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <new>
#include <span>

#include "server/api/http_headers.hpp"
#include "server/api/refusal.hpp"

namespace sluice::server::api {
namespace {

/// Of zlib's windowBits: the header is that of gzip.
constexpr int kGzipHeader = 16;
/// Of zlib's windowBits: the header decides.
constexpr int kAnyHeader = 32;

/// The weight of an encoding in thousandths; nothing: the header does not name it.
using Accepted = std::optional<int>;

/// Of the parameters of an item of Accept-Encoding. 0: the client does not take it. What is no
/// weight is taken as 0, so that the client gets what every client understands.
int weight_of(std::span<const std::string_view> parameters) {
  for (const std::string_view parameter : parameters) {
    if (!is_word(parameter.substr(0, 2), "q=")) continue;
    double weight = 0;
    const char* const end = parameter.data() + parameter.size();
    const auto read = std::from_chars(parameter.data() + 2, end, weight, std::chars_format::fixed);
    const bool good = read.ec == std::errc() && read.ptr == end && weight >= 0 && weight <= 1;
    return good ? static_cast<int>(weight * 1000) : 0;
  }
  return 1000;
}

bool is_gzip(std::string_view name) { return is_word(name, "gzip") || is_word(name, "x-gzip"); }

Bytef* input(std::string_view data) {
  // zlib does not write to its input; its interface has no const.
  return reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
}

/// zlib takes no more than that in one step.
uInt at_once(std::size_t bytes) {
  return static_cast<uInt>(std::min<std::size_t>(bytes, std::numeric_limits<uInt>::max()));
}

}  // namespace

Encoding content_encoding(std::string_view header) {
  if (header.empty() || is_word(header, "identity")) return Encoding::kIdentity;
  if (is_gzip(header)) return Encoding::kGzip;
  if (is_word(header, "deflate")) return Encoding::kDeflate;
  refuse("Content-Encoding '" + std::string(header) + "' is not served; use gzip or deflate",
         Code::kUnimplemented);
}

Encoding accepted_encoding(std::string_view header) {
  Accepted gzip, deflate, others;
  for (const std::string_view item : list_items(header, ',')) {
    const auto parts = list_items(item, ';');
    if (parts.empty()) continue;
    const int weight = weight_of({parts.begin() + 1, parts.end()});
    if (is_gzip(parts[0])) gzip = weight;
    if (is_word(parts[0], "deflate")) deflate = weight;
    if (parts[0] == "*") others = weight;
  }
  const int gzip_weight = gzip.value_or(others.value_or(0));
  const int deflate_weight = deflate.value_or(others.value_or(0));
  if (gzip_weight > 0 && gzip_weight >= deflate_weight) return Encoding::kGzip;
  return deflate_weight > 0 ? Encoding::kDeflate : Encoding::kIdentity;
}

std::string_view to_string(Encoding encoding) {
  switch (encoding) {
    case Encoding::kGzip:
      return "gzip";
    case Encoding::kDeflate:
      return "deflate";
    case Encoding::kIdentity:
      break;
  }
  return "identity";
}

std::optional<std::string> inflated_within(std::string_view data, std::size_t max_bytes) {
  z_stream stream{};
  if (inflateInit2(&stream, MAX_WBITS + kAnyHeader) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> ended(&stream, inflateEnd);
  const bool gzip = data.starts_with("\x1f\x8b");
  std::string out;
  std::size_t size = 0;
  int state = Z_OK;
  do {
    // Grows with what was found, so that a small body takes little memory. One byte over the limit
    // shows a body that is too large.
    if (size == out.size()) {
      out.resize(std::min(std::max<std::size_t>(2 * size, 64 << 10), max_bytes + 1));
    }
    stream.next_in = input(data);
    const uInt given = stream.avail_in = at_once(data.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + size);
    const uInt space = stream.avail_out = at_once(out.size() - size);
    // A gzip file is a series of members (RFC 1952, 2.2).
    if (state == Z_STREAM_END) inflateReset2(&stream, MAX_WBITS + kGzipHeader);
    state = ::inflate(&stream, Z_NO_FLUSH);
    data.remove_prefix(given - stream.avail_in);
    size += space - stream.avail_out;
    if (size > max_bytes) return std::nullopt;
    const bool starved = state == Z_OK && stream.avail_out > 0 && data.empty();
    const bool follows = state == Z_STREAM_END && !data.empty();
    if ((state != Z_OK && state != Z_STREAM_END) || starved || (follows && !gzip)) {
      refuse("the body is not valid gzip or deflate data");
    }
  } while (state != Z_STREAM_END || !data.empty());
  out.resize(size);
  return out;
}

std::string inflate(std::string_view data, std::size_t max_bytes) {
  auto plain = inflated_within(data, max_bytes);
  if (!plain) refuse("the inflated body has more than " + std::to_string(max_bytes) + " bytes");
  return std::move(*plain);
}

std::string deflate(std::string_view data, Encoding encoding) {
  z_stream stream{};
  const int bits = MAX_WBITS + (encoding == Encoding::kGzip ? kGzipHeader : 0);
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();
  }
  const std::unique_ptr<z_stream, decltype(&deflateEnd)> ended(&stream, deflateEnd);
  std::string out(deflateBound(&stream, data.size()), '\0');
  stream.next_in = input(data);
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  ::deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  return out;
}

}  // namespace sluice::server::api
