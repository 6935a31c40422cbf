#pragma once
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>

#include "server/api/request_rules.hpp"
#include "server/service/service.hpp"

/// ModelInfer between the wire and the service. Throws Refusal.
namespace sluice::server::api {

/// The work of decode_infer(), as CodecPool::post(). Refuses nothing.
[[nodiscard]] std::size_t decoding_work(grpc::ByteBuffer& message);

/// Parses a ModelInferRequest. The tensors point into the parsed message, which Request::storage
/// keeps. headers_ns: the start of relative deadlines.
[[nodiscard]] Request decode_infer(grpc::ByteBuffer& message, std::uint64_t headers_ns);

/// A ModelInferResponse whose raw tensors are the bytes of `response` themselves: the buffer keeps
/// its storage.
[[nodiscard]] grpc::ByteBuffer encode_infer(const Echo& echo, const Response& response);

}  // namespace sluice::server::api
