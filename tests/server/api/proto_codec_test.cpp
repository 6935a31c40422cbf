#include "server/api/proto_codec.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "codec_text.hpp"
#include "server/api/kserve.pb.h"

namespace sluice::server::api {
namespace {

using inference::ModelInferRequest;
using test::bytes_of;
using test::refusal;
using test::text_of;

Request decode(const ModelInferRequest& message) {
  grpc::Slice slice(message.SerializeAsString());
  grpc::ByteBuffer buffer(&slice, 1);
  return decode_infer(buffer, 1000);
}

ModelInferRequest request_of(const std::string& type, std::initializer_list<std::int64_t> shape) {
  ModelInferRequest message;
  message.set_model_name("m");
  auto& input = *message.add_inputs();
  input.set_name("x");
  input.set_datatype(type);
  input.mutable_shape()->Assign(shape.begin(), shape.end());
  return message;
}

TEST(ProtoCodec, TakesEachTypeAsTypedContents) {
  const auto check = [](const std::string& type, const std::string& expected, auto fill) {
    auto message = request_of(type, {2});
    fill(*message.mutable_inputs(0)->mutable_contents());
    EXPECT_EQ(text_of(decode(message).inputs[0].data), expected) << type;
  };
  check("BOOL", bytes_of(true, false),
        [](auto& to) { to.add_bool_contents(true), to.add_bool_contents(false); });
  check("UINT8", bytes_of(std::uint8_t{1}, std::uint8_t{255}),
        [](auto& to) { to.add_uint_contents(1), to.add_uint_contents(255); });
  check("UINT16", bytes_of(std::uint16_t{1}, std::uint16_t{65535}),
        [](auto& to) { to.add_uint_contents(1), to.add_uint_contents(65535); });
  check("UINT32", bytes_of(1U, ~0U),
        [](auto& to) { to.add_uint_contents(1), to.add_uint_contents(~0U); });
  check("UINT64", bytes_of(1UL, ~0UL),
        [](auto& to) { to.add_uint64_contents(1), to.add_uint64_contents(~0UL); });
  check("INT8", bytes_of(std::int8_t{1}, std::int8_t{-128}),
        [](auto& to) { to.add_int_contents(1), to.add_int_contents(-128); });
  check("INT16", bytes_of(std::int16_t{1}, std::int16_t{-2}),
        [](auto& to) { to.add_int_contents(1), to.add_int_contents(-2); });
  check("INT32", bytes_of(1, -2),
        [](auto& to) { to.add_int_contents(1), to.add_int_contents(-2); });
  check("INT64", bytes_of(1L, -2L),
        [](auto& to) { to.add_int64_contents(1), to.add_int64_contents(-2); });
  check("FP32", bytes_of(1.5F, -2.5F),
        [](auto& to) { to.add_fp32_contents(1.5F), to.add_fp32_contents(-2.5F); });
  check("FP64", bytes_of(1.5, -2.5),
        [](auto& to) { to.add_fp64_contents(1.5), to.add_fp64_contents(-2.5); });
  check("BYTES", bytes_of(1U) + "a" + bytes_of(0U),
        [](auto& to) { to.add_bytes_contents("a"), to.add_bytes_contents(""); });
}

TEST(ProtoCodec, RawTensorsAreNotCopied) {
  auto message = request_of("FP32", {2});
  message.add_raw_input_contents(bytes_of(1.5F, 2.5F));
  const auto request = decode(message);
  EXPECT_EQ(text_of(request.inputs[0].data), bytes_of(1.5F, 2.5F));
  EXPECT_EQ(request.storage.use_count(), 1);
}

// gRPC may send an output long after the service has given it.
TEST(ProtoCodec, AResponseKeepsTheMemoryOfItsOutputs) {
  const auto storage = std::make_shared<std::string>(10'000, 'x');
  const Response response{
      {{"y", engine::DataType::kUint8, {10'000}, std::as_bytes(std::span(*storage))}}, storage};
  auto buffer = encode_infer({"m", "1", ""}, response);
  EXPECT_EQ(storage.use_count(), 3);
  buffer.Clear();
  EXPECT_EQ(storage.use_count(), 2);
}

TEST(ProtoCodec, RefusesTensorsThatAreNotWhatTheySay) {
  const auto fault = [](const std::string& type, std::initializer_list<std::int64_t> shape,
                        const std::string& raw) {
    auto message = request_of(type, shape);
    message.add_raw_input_contents(raw);
    return refusal([&] { decode(message); });
  };
  EXPECT_EQ(fault("FP31", {1}, "abcd"), "tensor 'x': unknown datatype 'FP31'");
  EXPECT_EQ(fault("FP32", {2}, "abcd"), "tensor 'x': found 4 bytes, expected 8");
  EXPECT_EQ(fault("FP32", {-1}, "abcd"),
            "tensor 'x': the shape has a negative dimension or too many elements");
  EXPECT_EQ(fault("FP32", {1L << 40, 1L << 40}, ""),
            "tensor 'x': the shape has a negative dimension or too many elements");
  EXPECT_EQ(fault("INT64", {1L << 61}, ""), "tensor 'x': the shape has too many elements");
  EXPECT_EQ(fault("BYTES", {1}, bytes_of(5U) + "abc"),
            "tensor 'x': element 0 has length 5, but only 3 bytes follow");
  EXPECT_EQ(fault("UINT8", {}, "a"), "");
}

TEST(ProtoCodec, RefusesTypedContentsThatDoNotFit) {
  auto narrow = request_of("INT8", {1});
  narrow.mutable_inputs(0)->mutable_contents()->add_int_contents(128);
  EXPECT_EQ(refusal([&] { decode(narrow); }), "tensor 'x': 128 does not fit its datatype");
  auto half = request_of("FP16", {1});
  half.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  EXPECT_EQ(refusal([&] { decode(half); }), "tensor 'x': FP16 must be in raw_input_contents");
  // Values in the field of another type would be lost without a word.
  auto stray = request_of("FP32", {1});
  stray.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  stray.mutable_inputs(0)->mutable_contents()->add_int_contents(1);
  EXPECT_EQ(refusal([&] { decode(stray); }),
            "tensor 'x': found 2 values in its contents, expected 1");
}

TEST(ProtoCodec, RefusesRawAndTypedContentsTogether) {
  auto message = request_of("INT32", {1});
  message.mutable_inputs(0)->mutable_contents()->add_int_contents(1);
  message.add_raw_input_contents("abcd");
  EXPECT_EQ(refusal([&] { decode(message); }),
            "tensor 'x' has contents although the request has raw_input_contents");
  message.mutable_inputs(0)->clear_contents();
  message.add_raw_input_contents("abcd");
  EXPECT_EQ(refusal([&] { decode(message); }), "found 2 raw_input_contents, expected 1");
}

TEST(ProtoCodec, RefusesNamesThatAreMissingOrTwice) {
  auto twice = request_of("UINT8", {0});
  *twice.add_inputs() = twice.inputs(0);
  EXPECT_EQ(refusal([&] { decode(twice); }), "input 'x' is given twice");
  auto unnamed = request_of("UINT8", {0});
  unnamed.mutable_inputs(0)->clear_name();
  EXPECT_EQ(refusal([&] { decode(unnamed); }), "an input has no name");
  auto outputs = request_of("UINT8", {0});
  outputs.add_outputs()->set_name("y");
  outputs.add_outputs()->set_name("y");
  EXPECT_EQ(refusal([&] { decode(outputs); }), "output 'y' is asked for twice");
  auto nobody = request_of("UINT8", {0});
  nobody.clear_model_name();
  EXPECT_EQ(refusal([&] { decode(nobody); }), "the request names no model");
}

// A parsed message of empty parts takes many times its bytes.
TEST(ProtoCodec, RefusesMessagesThatWouldGrow) {
  ModelInferRequest many;
  for (int i = 0; i < 5000; ++i) many.add_inputs();
  EXPECT_EQ(refusal([&] { decode(many); }),
            "the request has too many inputs, outputs and parameters");
  auto typed = request_of("BYTES", {0});
  typed.mutable_inputs(0)->mutable_contents()->add_bytes_contents(std::string(33 << 20, 'x'));
  EXPECT_EQ(refusal([&] { decode(typed); }),
            "the request has more than 32 MiB outside raw_input_contents: send tensors there");
  auto raw = request_of("UINT8", {33 << 20});
  raw.add_raw_input_contents(std::string(33 << 20, 'x'));
  EXPECT_EQ(refusal([&] { decode(raw); }), "");
  grpc::Slice slice(std::string("\x0b\x0c"));  // Groups have no length to skip by.
  grpc::ByteBuffer groups(&slice, 1);
  EXPECT_EQ(refusal([&] { (void)decode_infer(groups, 0); }),
            "the message is not a ModelInferRequest");
}

TEST(ProtoCodec, RefusesExtensionsThatAreNotServed) {
  auto sequence = request_of("UINT8", {0});
  (*sequence.mutable_parameters())["sequence_id"].set_int64_param(7);
  EXPECT_EQ(refusal([&] { decode(sequence); }),
            "parameter 'sequence_id': sequences are not served");
  (*sequence.mutable_parameters())["sequence_id"].set_int64_param(0);
  EXPECT_EQ(refusal([&] { decode(sequence); }), "");
  auto shared = request_of("UINT8", {0});
  (*shared.mutable_inputs(0)->mutable_parameters())["shared_memory_region"].set_string_param("r");
  EXPECT_EQ(refusal([&] { decode(shared); }), "tensor 'x': shared memory is not served");
  auto classes = request_of("UINT8", {0});
  classes.add_outputs()->set_name("y");
  (*classes.mutable_outputs(0)->mutable_parameters())["classification"].set_int64_param(3);
  EXPECT_EQ(refusal([&] { decode(classes); }), "tensor 'y': classification is not served");
}

TEST(ProtoCodec, ChecksPriorityAndDeadlines) {
  const auto with = [](const std::string& name, double value) {
    auto message = request_of("UINT8", {0});
    (*message.mutable_parameters())[name].set_double_param(value);
    return message;
  };
  EXPECT_EQ(refusal([&] { decode(with("priority", -1)); }),
            "parameter 'priority' must be a number of 0 or more");
  EXPECT_EQ(refusal([&] { decode(with("timeout", std::nan(""))); }),
            "parameter 'timeout' must be a number of 0 or more");
  EXPECT_EQ(decode(with("timeout", 5)).deadline_ns, 1000 + 5000U);
  EXPECT_EQ(decode(with("slo_ms", 2)).deadline_ns, 1000 + 2'000'000U);
  // No deadline, rather than one that overflows into the past.
  EXPECT_EQ(decode(with("timeout", 1e300)).deadline_ns, 0U);
  EXPECT_EQ(decode(with("slo_ms", 0)).deadline_ns, 0U);
}

}  // namespace
}  // namespace sluice::server::api
