#pragma once
#include <cstddef>
#include <optional>
#include <string>

#include "server/api/codec_pool.hpp"
#include "server/api/http_call.hpp"
#include "server/service/byte_budget.hpp"

/// Bodies of HTTP with their encoding, and where they are inflated, encoded and compressed.
namespace sluice::server::api {

/// The body without its Content-Encoding; nothing if inflating gives more than max_bytes. An empty
/// body is not encoded, whatever the header says. Throws Refusal.
[[nodiscard]] std::optional<Body> inflated_body(const Body& body, const std::string& encoding,
                                                std::size_t max_bytes, const ByteBudget& memory);
/// The same, but a body with more than max_bytes is refused, too.
[[nodiscard]] Body plain_body(const Body& body, const std::string& encoding, std::size_t max_bytes,
                              const ByteBudget& memory);

/// The reply in the encoding that the client prefers, if that makes it smaller.
[[nodiscard]] HttpReply encoded(HttpReply reply, const std::string& accept);

/// Runs `make`; a refusal becomes its reply.
[[nodiscard]] HttpReply guarded(const MakeReply& make);

/// Answers with what `make` returns. work: how much there is to do, as CodecPool::post(). Runs
/// `make` in the pool if that is much, else in the thread of the connection.
void answer(CodecPool& pool, std::size_t work, MakeReply make, const ReplyDone& done);

}  // namespace sluice::server::api
