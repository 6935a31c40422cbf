#include "server/api/proto_codec.hpp"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "server/api/codec_pool.hpp"
#include "server/api/kserve.pb.h"
#include "server/api/refusal.hpp"

namespace sluice::server::api {
namespace {

using engine::DataType;
using inference::InferTensorContents;
using inference::ModelInferRequest;

/// A parsed message takes up to 60 times the memory of its bytes if it is made of empty parts.
/// Tensors in raw_input_contents do not grow. So the rest of a message has limits of its own.
constexpr std::size_t kMaxFields = 4096;
constexpr std::size_t kMaxOutsideRawBytes = std::size_t{32} << 20;

/// Skips a field. Returns the bytes that its parsed form grows with.
std::size_t skip_field(google::protobuf::io::CodedInputStream& in, std::uint32_t tag) {
  constexpr std::uint32_t kRawTag = ModelInferRequest::kRawInputContentsFieldNumber << 3U | 2U;
  std::uint64_t varint = 0;
  std::uint32_t length = 0;
  bool good = false;
  switch (tag & 7U) {
    case 0:
      good = in.ReadVarint64(&varint);
      break;
    case 1:
      good = in.Skip(8);
      break;
    case 2:
      good = in.ReadVarint32(&length) && in.Skip(static_cast<int>(length));
      break;
    case 5:
      good = in.Skip(4);
      break;
    default:
      break;
  }
  if (!good) refuse("the message is not a ModelInferRequest");
  return tag == kRawTag ? 0 : length;
}

/// Applies the limits before anything is built. Returns the bytes outside of raw_input_contents.
std::size_t check_size(grpc::ByteBuffer& message) {
  grpc::ProtoBufferReader reader(&message);
  google::protobuf::io::CodedInputStream in(&reader);
  std::size_t outside = 0;
  std::size_t fields = 0;
  while (const std::uint32_t tag = in.ReadTag()) {
    outside += skip_field(in, tag);
    if (++fields > kMaxFields) refuse("the request has too many inputs, outputs and parameters");
    if (outside > kMaxOutsideRawBytes) {
      refuse("the request has more than 32 MiB outside raw_input_contents: send tensors there");
    }
  }
  return outside;
}

/// Keeps a parsed message, and the tensors that had to be converted.
struct Storage {
  ModelInferRequest message;
  std::vector<std::vector<std::byte>> converted;
};

Parameter parameter(const inference::InferParameter& value) {
  using Kind = inference::InferParameter::ParameterChoiceCase;
  switch (value.parameter_choice_case()) {
    case Kind::kBoolParam:
      return value.bool_param();
    case Kind::kInt64Param:
      return value.int64_param();
    case Kind::kUint64Param:
      return value.uint64_param();
    case Kind::kDoubleParam:
      return value.double_param();
    case Kind::kStringParam:
      return value.string_param();
    default:
      return std::string();
  }
}

template <typename Value>
std::span<const std::byte> bytes_of(const google::protobuf::RepeatedField<Value>& values) {
  return std::as_bytes(std::span(values.data(), static_cast<std::size_t>(values.size())));
}

/// Values of a type that protobuf does not have, from the next wider type.
template <typename Narrow, typename Wide>
std::vector<std::byte> narrowed(const std::string& tensor,
                                const google::protobuf::RepeatedField<Wide>& values) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(values.size()) * sizeof(Narrow));
  std::byte* out = bytes.data();
  for (const Wide value : values) {
    if (!std::in_range<Narrow>(value)) {
      refuse("tensor '" + tensor + "': " + std::to_string(value) + " does not fit its datatype");
    }
    const auto fitting = static_cast<Narrow>(value);
    std::memcpy(out, &fitting, sizeof(fitting));
    out += sizeof(fitting);
  }
  return bytes;
}

std::vector<std::byte> with_lengths(const google::protobuf::RepeatedPtrField<std::string>& values) {
  std::size_t size = 0;
  for (const std::string& value : values) size += sizeof(std::uint32_t) + value.size();
  std::vector<std::byte> bytes(size);
  std::byte* out = bytes.data();
  for (const std::string& value : values) {
    const auto length = static_cast<std::uint32_t>(value.size());
    std::memcpy(out, &length, sizeof(length));
    std::memcpy(out + sizeof(length), value.data(), value.size());
    out += sizeof(length) + value.size();
  }
  return bytes;
}

/// All values of the contents, in whichever field. A value in the wrong field would be lost.
std::size_t count(const InferTensorContents& contents) {
  const std::int64_t values = std::int64_t{0} + contents.bool_contents_size() +
                              contents.int_contents_size() + contents.int64_contents_size() +
                              contents.uint_contents_size() + contents.uint64_contents_size() +
                              contents.fp32_contents_size() + contents.fp64_contents_size() +
                              contents.bytes_contents_size();
  return static_cast<std::size_t>(values);
}

std::span<const std::byte> keep(Storage& storage, std::vector<std::byte> bytes) {
  return storage.converted.emplace_back(std::move(bytes));
}

/// The bytes of typed contents: in place where protobuf's memory has the layout of the tensor.
std::span<const std::byte> typed_data(Storage& storage, const std::string& name, DataType type,
                                      const InferTensorContents& from) {
  switch (type) {
    case DataType::kBool:
      return bytes_of(from.bool_contents());
    case DataType::kInt8:
      return keep(storage, narrowed<std::int8_t>(name, from.int_contents()));
    case DataType::kInt16:
      return keep(storage, narrowed<std::int16_t>(name, from.int_contents()));
    case DataType::kInt32:
      return bytes_of(from.int_contents());
    case DataType::kInt64:
      return bytes_of(from.int64_contents());
    case DataType::kUint8:
      return keep(storage, narrowed<std::uint8_t>(name, from.uint_contents()));
    case DataType::kUint16:
      return keep(storage, narrowed<std::uint16_t>(name, from.uint_contents()));
    case DataType::kUint32:
      return bytes_of(from.uint_contents());
    case DataType::kUint64:
      return bytes_of(from.uint64_contents());
    case DataType::kFp32:
      return bytes_of(from.fp32_contents());
    case DataType::kFp64:
      return bytes_of(from.fp64_contents());
    case DataType::kBytes:
      return keep(storage, with_lengths(from.bytes_contents()));
    case DataType::kFp16:
    case DataType::kBf16:
      break;
  }
  refuse("tensor '" + name + "': " + std::string(engine::to_string(type)) +
         " must be in raw_input_contents");
}

void check_count(const engine::Tensor& tensor, const InferTensorContents& contents) {
  const auto expected = engine::element_count(tensor.shape);
  if (!expected) return;  // check_tensor() says why.
  const std::size_t found = count(contents);
  if (found != *expected) {
    refuse("tensor '" + tensor.name + "': found " + std::to_string(found) +
           " values in its contents, expected " + std::to_string(*expected));
  }
}

engine::Tensor decode_input(Storage& storage, int index) {
  const auto& from = storage.message.inputs(index);
  engine::Tensor tensor{from.name(),
                        data_type(from.name(), from.datatype()),
                        {from.shape().begin(), from.shape().end()},
                        {}};
  for (const auto& [name, value] : from.parameters()) check_tensor_parameter(from.name(), name);
  if (storage.message.raw_input_contents_size() == 0) {
    check_count(tensor, from.contents());
    tensor.data = typed_data(storage, tensor.name, tensor.type, from.contents());
  } else {
    if (from.has_contents() && count(from.contents()) > 0) {
      refuse("tensor '" + tensor.name +
             "' has contents although the request has raw_input_contents");
    }
    tensor.data = std::as_bytes(std::span(storage.message.raw_input_contents(index)));
  }
  check_tensor(tensor);
  return tensor;
}

void check_raw_count(const ModelInferRequest& message) {
  if (message.raw_input_contents_size() == 0 ||
      message.raw_input_contents_size() == message.inputs_size()) {
    return;
  }
  refuse("found " + std::to_string(message.raw_input_contents_size()) +
         " raw_input_contents, expected " + std::to_string(message.inputs_size()));
}

/// A slice of the tensor's own bytes. The slice keeps what owns them.
grpc::Slice shared_slice(std::span<const std::byte> data,
                         const std::shared_ptr<const void>& storage) {
  // Below this, a copy is cheaper than a counted reference.
  constexpr std::size_t kCopied = 1024;
  if (data.size() <= kCopied || !storage) return grpc::Slice(data.data(), data.size());
  auto* held = std::make_unique<std::shared_ptr<const void>>(storage).release();
  // gRPC does not write to slices; its interface has no const.
  auto* start = const_cast<std::byte*>(data.data());
  return grpc::Slice(
      start, data.size(),
      [](void* user) {
        std::unique_ptr<std::shared_ptr<const void>>(
            static_cast<std::shared_ptr<const void>*>(user));
      },
      held);
}

/// The tag and the length in front of an entry of raw_output_contents.
grpc::Slice raw_prefix(std::size_t size) {
  constexpr std::uint8_t kTag =
      inference::ModelInferResponse::kRawOutputContentsFieldNumber << 3U | 2U;
  std::uint8_t prefix[11] = {kTag};
  const std::uint8_t* end =
      google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(size, prefix + 1);
  return grpc::Slice(prefix, static_cast<std::size_t>(end - prefix));
}

}  // namespace

std::size_t decoding_work(grpc::ByteBuffer& message) {
  if (message.Length() < CodecPool::kLarge) return message.Length();
  try {
    const std::size_t parsed = check_size(message);
    return CodecPool::work_of(parsed, message.Length() - parsed);
  } catch (const Refusal&) {
    return 0;  // decode_infer() refuses it for the same reason, as early.
  }
}

Request decode_infer(grpc::ByteBuffer& message, std::uint64_t headers_ns) {
  static_cast<void>(check_size(message));
  const auto storage = std::make_shared<Storage>();
  {
    grpc::ProtoBufferReader reader(&message);
    if (!storage->message.ParseFromZeroCopyStream(&reader)) {
      refuse("the message is not a ModelInferRequest");
    }
  }
  const ModelInferRequest& from = storage->message;
  check_raw_count(from);

  Request request;
  request.id = from.id();
  request.model = from.model_name();
  request.version = from.model_version();
  request.headers_ns = headers_ns;
  for (const auto& [name, value] : from.parameters()) {
    apply_parameter(request, name, parameter(value));
  }
  request.inputs.reserve(static_cast<std::size_t>(from.inputs_size()));
  for (int i = 0; i < from.inputs_size(); ++i) request.inputs.push_back(decode_input(*storage, i));
  for (const auto& output : from.outputs()) {
    for (const auto& [name, value] : output.parameters()) {
      check_tensor_parameter(output.name(), name);
    }
    request.outputs.push_back(output.name());
  }
  request.storage_bytes = storage->message.SpaceUsedLong();
  for (const auto& tensor : storage->converted) request.storage_bytes += tensor.capacity();
  request.storage = storage;
  check_request(request);
  return request;
}

grpc::ByteBuffer encode_infer(const Echo& echo, const Response& response) {
  inference::ModelInferResponse head;
  head.set_model_name(echo.model);
  head.set_model_version(version_of(echo, response));
  head.set_id(echo.id);
  for (const engine::Tensor& output : response.outputs) {
    auto& to = *head.add_outputs();
    to.set_name(output.name);
    to.set_datatype(std::string(engine::to_string(output.type)));
    to.mutable_shape()->Assign(output.shape.begin(), output.shape.end());
  }
  std::vector<grpc::Slice> slices{grpc::Slice(head.SerializeAsString())};
  for (const engine::Tensor& output : response.outputs) {
    slices.push_back(raw_prefix(output.data.size()));
    slices.push_back(shared_slice(output.data, response.storage));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace sluice::server::api
