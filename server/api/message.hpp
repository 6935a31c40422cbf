#pragma once
#include <google/protobuf/message.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

/// Messages of GenericCall, which gRPC neither parses nor serializes.
namespace sluice::server::api {

/// False if the bytes are no such message. Clears `from`.
template <typename Message>
[[nodiscard]] bool parse(grpc::ByteBuffer& from, Message& to) {
  return grpc::SerializationTraits<Message>::Deserialize(&from, &to).ok();
}

[[nodiscard]] inline grpc::ByteBuffer serialized(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

}  // namespace sluice::server::api
