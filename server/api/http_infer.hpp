#pragma once
#include <memory>

#include "server/api/codec_pool.hpp"
#include "server/api/http_call.hpp"
#include "server/api/http_target.hpp"
#include "server/service/service.hpp"

namespace sluice::server::api {

/// Announces an inference over HTTP, and answers it. max_bytes: of the body when inflated. service,
/// pool: must live longer.
[[nodiscard]] std::shared_ptr<HttpCall> http_infer_call(Service& service, CodecPool& pool,
                                                        const HttpHead& head, HttpTarget target,
                                                        std::size_t max_bytes);

}  // namespace sluice::server::api
