#include "server/api/compression.hpp"

#include <zlib.h>

#include <algorithm>
#include <memory>
#include <new>

#include "server/api/refusal.hpp"

namespace sluice::server::api {
namespace {

/// Of zlib's windowBits: the header is that of gzip.
constexpr int kGzipHeader = 16;
/// Of zlib's windowBits: the header decides.
constexpr int kAnyHeader = 32;

Bytef* input(std::string_view data) {
  // zlib does not write to its input; its interface has no const.
  return reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
}

}  // namespace

Encoding content_encoding(std::string_view header) {
  if (header.empty() || header == "identity") return Encoding::kIdentity;
  if (header == "gzip" || header == "x-gzip") return Encoding::kGzip;
  if (header == "deflate") return Encoding::kDeflate;
  refuse("Content-Encoding '" + std::string(header) + "' is not served; use gzip or deflate",
         Code::kUnimplemented);
}

Encoding accepted_encoding(std::string_view header) {
  if (header.find("gzip") != std::string_view::npos) return Encoding::kGzip;
  if (header.find("deflate") != std::string_view::npos) return Encoding::kDeflate;
  return Encoding::kIdentity;
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

std::string inflate(std::string_view data, std::size_t max_bytes) {
  z_stream stream{};
  if (inflateInit2(&stream, MAX_WBITS + kAnyHeader) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> ended(&stream, inflateEnd);
  stream.next_in = input(data);
  stream.avail_in = static_cast<uInt>(data.size());
  std::string out;
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    const std::size_t done = out.size();
    // Grows with what was found, so that a small body takes little memory. One byte over the limit
    // shows a body that is too large.
    const std::size_t room = std::min(std::max<std::size_t>(done, 64 << 10), max_bytes + 1 - done);
    out.resize(done + room);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    stream.avail_out = static_cast<uInt>(room);
    state = ::inflate(&stream, Z_NO_FLUSH);
    out.resize(done + room - stream.avail_out);
    if (out.size() > max_bytes) {
      refuse("the inflated body has more than " + std::to_string(max_bytes) + " bytes");
    }
    const bool starved = stream.avail_out > 0 && state == Z_OK;
    if ((state != Z_OK && state != Z_STREAM_END) || starved) {
      refuse("the body is not valid gzip or deflate data");
    }
  }
  return out;
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
