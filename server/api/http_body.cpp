#include "server/api/http_body.hpp"

#include <limits>
#include <memory>
#include <utility>

#include "server/api/compression.hpp"
#include "server/api/refusal.hpp"
#include "server/api/request_rules.hpp"

namespace sluice::server::api {
namespace {

/// A smaller body gains nothing.
constexpr std::size_t kWorthDeflating = 512;
/// zlib compresses no more in one step.
constexpr std::size_t kMostDeflated = std::numeric_limits<std::uint32_t>::max();

}  // namespace

std::optional<Body> inflated_body(const Body& body, const std::string& encoding,
                                  std::size_t max_bytes, const ByteBudget& memory) {
  if (content_encoding(encoding) == Encoding::kIdentity || body.bytes.empty()) return body;
  auto inflated = inflated_within(body.bytes, max_bytes);
  if (!inflated) return std::nullopt;
  auto plain = std::make_shared<std::string>(std::move(*inflated));
  const std::string_view bytes = *plain;
  return Body{bytes, counted(std::move(plain), share_of(memory, bytes.size()))};
}

Body plain_body(const Body& body, const std::string& encoding, std::size_t max_bytes,
                const ByteBudget& memory) {
  auto plain = inflated_body(body, encoding, max_bytes, memory);
  if (!plain) refuse("the inflated body has more than " + std::to_string(max_bytes) + " bytes");
  return std::move(*plain);
}

HttpReply encoded(HttpReply reply, const std::string& accept) {
  const std::size_t bytes = reply.body.size();
  const Encoding encoding = accepted_encoding(accept);
  if (encoding == Encoding::kIdentity || bytes < kWorthDeflating || bytes > kMostDeflated) {
    return reply;
  }
  reply.body = deflate(reply.body, encoding);
  reply.headers.emplace_back("Content-Encoding", to_string(encoding));
  return reply;
}

HttpReply guarded(const MakeReply& make) {
  try {
    return make();
  } catch (const Refusal& refusal) {
    return error_reply(refusal.status);
  }
}

void answer(CodecPool& pool, std::size_t work, MakeReply make, const ReplyDone& done) {
  if (work < CodecPool::kLarge) return done(std::move(make));
  pool.post(work, [make = std::move(make), done]() mutable {
    auto made = std::make_shared<HttpReply>(make());
    make = nullptr;  // What it held is free for the reply, which may wait for its client.
    done([made = std::move(made)] { return std::move(*made); });
  });
}

}  // namespace sluice::server::api
