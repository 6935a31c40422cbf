#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// HTTP/2 as bytes, right or wrong, for a RawHttp.
namespace sluice::test {

using Http2Headers = std::vector<std::pair<std::string, std::string>>;

/// A frame.
inline std::string frame(char type, char flags, std::uint32_t stream, std::string_view payload) {
  const auto size = payload.size();
  const char head[] = {static_cast<char>(size >> 16U),
                       static_cast<char>(size >> 8U),
                       static_cast<char>(size),
                       type,
                       flags,
                       static_cast<char>(stream >> 24U),
                       static_cast<char>(stream >> 16U),
                       static_cast<char>(stream >> 8U),
                       static_cast<char>(stream)};
  return std::string(head, sizeof(head)).append(payload);
}

/// With it a client begins.
inline std::string http2_preface(const std::string& settings = "") {
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, settings);
}

/// The server's settings, among them its limits, hold from then on.
inline std::string settings_acknowledged() { return frame(4, 1, 0, ""); }

/// A literal of HPACK that is neither compressed nor kept.
inline std::string hpack_text(const std::string& text) {
  std::size_t size = text.size();
  if (size < 127) return std::string(1, static_cast<char>(size)) + text;
  std::string length(1, '\x7f');
  for (size -= 127; size >= 128; size /= 128) length += static_cast<char>(size % 128 + 128);
  return length + static_cast<char>(size) + text;
}

/// The headers of a stream, in as many frames as they need. end: the stream has nothing else.
inline std::string header_frames(std::uint32_t stream, const Http2Headers& headers, bool end) {
  constexpr std::size_t kMost = 16384;
  std::string block;
  for (const auto& [name, value] : headers) {
    block += std::string(1, '\0') + hpack_text(name) + hpack_text(value);
  }
  std::string frames;
  for (std::size_t at = 0; at == 0 || at < block.size(); at += kMost) {
    const bool last = at + kMost >= block.size();
    const int flags = (last ? 4 : 0) | (end && at == 0 ? 1 : 0);
    frames += frame(at == 0 ? 1 : 9, static_cast<char>(flags), stream,
                    std::string_view(block).substr(at, kMost));
  }
  return frames;
}

inline Http2Headers grpc_headers(const std::string& path) {
  return {{":method", "POST"},         {":scheme", "http"}, {":path", path},
          {":authority", "localhost"}, {"te", "trailers"},  {"content-type", "application/grpc"}};
}

/// A message behind its length, as gRPC frames it.
inline std::string grpc_message(const std::string& message) {
  const auto size = message.size();
  return std::string{0, static_cast<char>(size >> 24U), static_cast<char>(size >> 16U),
                     static_cast<char>(size >> 8U), static_cast<char>(size)} +
         message;
}

/// What a client sends for one call.
inline std::string call_bytes(std::uint32_t stream, const std::string& path,
                              const std::string& message) {
  return header_frames(stream, grpc_headers(path), false) +
         frame(0, 1, stream, grpc_message(message));
}

}  // namespace sluice::test
