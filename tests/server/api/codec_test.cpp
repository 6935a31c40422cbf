#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <map>

#include "server/api/compression.hpp"
#include "server/api/json_codec.hpp"
#include "server/api/kserve.pb.h"
#include "server/api/proto_codec.hpp"
#include "server/api/refusal.hpp"

namespace sluice::server::api {
namespace {

using engine::DataType;
using inference::ModelInferRequest;
using nlohmann::json;

/// The message of the refusal, or an empty text.
template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Refusal& refused) {
    return refused.status.message;
  }
  return "";
}

template <typename... Value>
std::string bytes_of(Value... values) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&values), sizeof(values)), ...);
  return bytes;
}

std::string text_of(std::span<const std::byte> data) {
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

Request decode(const ModelInferRequest& message) {
  grpc::Slice slice(message.SerializeAsString());
  grpc::ByteBuffer buffer(&slice, 1);
  return decode_infer(buffer, 1000);
}

DecodedInfer decode(const std::string& body, std::optional<std::size_t> json_bytes = {}) {
  auto kept = std::make_shared<std::string>(body);
  return decode_infer({*kept, kept}, json_bytes, 1000);
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

/// One input of two values.
std::string input_json(const std::string& type, const std::string& data,
                       const std::string& shape = "[2]") {
  return R"({"inputs":[{"name":"x","datatype":")" + type + R"(","shape":)" + shape + R"(,"data":)" +
         data + "}]}";
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
  grpc::Slice slice(std::string("\x0b\x0b\x0b"));
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

TEST(JsonCodec, TakesEachType) {
  const std::map<std::string, std::pair<std::string, std::string>> cases = {
      {"BOOL", {"[true,false]", bytes_of(true, false)}},
      {"UINT8", {"[1,255]", bytes_of(std::uint8_t{1}, std::uint8_t{255})}},
      {"UINT16", {"[1,65535]", bytes_of(std::uint16_t{1}, std::uint16_t{65535})}},
      {"UINT32", {"[1,4294967295]", bytes_of(1U, ~0U)}},
      {"UINT64", {"[1,18446744073709551615]", bytes_of(1UL, ~0UL)}},
      {"INT8", {"[1,-128]", bytes_of(std::int8_t{1}, std::int8_t{-128})}},
      {"INT16", {"[1,-2]", bytes_of(std::int16_t{1}, std::int16_t{-2})}},
      {"INT32", {"[1,-2]", bytes_of(1, -2)}},
      {"INT64",
       {"[1,-9223372036854775808]", bytes_of(1L, std::numeric_limits<std::int64_t>::min())}},
      {"FP32", {"[1,-2.5]", bytes_of(1.0F, -2.5F)}},
      {"FP64", {"[1,-2.5]", bytes_of(1.0, -2.5)}},
      {"BYTES", {R"(["a",""])", bytes_of(1U) + "a" + bytes_of(0U)}}};
  for (const auto& [type, expected] : cases) {
    const auto decoded = decode(input_json(type, expected.first));
    EXPECT_EQ(text_of(decoded.request.inputs[0].data), expected.second) << type;
    // And back: the response has the same values.
    const auto encoded = encode_infer(
        {"m", "1", ""}, {decoded.request.inputs, decoded.request.storage}, decoded.format);
    EXPECT_EQ(json::parse(encoded.body)["outputs"][0]["data"], json::parse(expected.first)) << type;
  }
}

TEST(JsonCodec, TakesNestedLists) {
  EXPECT_EQ(text_of(decode(input_json("INT32", "[[1],[2]]", "[2,1]")).request.inputs[0].data),
            bytes_of(1, 2));
}

TEST(JsonCodec, RefusesValuesOfAnotherType) {
  const auto fault = [](const std::string& type, const std::string& data) {
    return refusal([&] { decode(input_json(type, data)); });
  };
  EXPECT_EQ(fault("UINT8", "[1,256]"), "tensor 'x': 256 is no UINT8");
  EXPECT_EQ(fault("UINT8", "[1,-1]"), "tensor 'x': -1 is no UINT8");
  EXPECT_EQ(fault("INT32", "[1,1.5]"), "tensor 'x': 1.5 is no INT32");
  EXPECT_EQ(fault("INT64", "[1,9223372036854775808]"),
            "tensor 'x': 9223372036854775808 is no INT64");
  EXPECT_EQ(fault("FP32", "[1,1e300]"), "tensor 'x': 1e+300 is no FP32");
  EXPECT_EQ(fault("BOOL", "[1,0]"), "tensor 'x': 1 is no BOOL");
  EXPECT_EQ(fault("BYTES", "[1,2]"), "tensor 'x': 1 is no BYTES");
  EXPECT_EQ(fault("FP16", "[1,2]"), "tensor 'x': FP16 has no JSON form: use binary data");
  EXPECT_EQ(fault("FP32", "[1,2,3]"), "tensor 'x': found 12 bytes, expected 8");
  EXPECT_EQ(fault("FP32", R"([1,{"a":1}])"), "tensor 'x': {\"a\":1} is no FP32");
}

TEST(JsonCodec, RefusesRequestsOfAnotherForm) {
  const auto fault = [](const std::string& body) { return refusal([&] { decode(body); }); };
  EXPECT_TRUE(fault("").starts_with("the JSON is not valid"));
  EXPECT_EQ(fault("[]"), "the request must be an object");
  EXPECT_EQ(fault(R"({"inputs":1})"), "'inputs' must be a list");
  EXPECT_EQ(fault(R"({"inputs":[1]})"), "an input must be an object");
  EXPECT_EQ(fault(R"({"inputs":[{"name":1}]})"), "an input must have 'name', a string");
  EXPECT_EQ(fault(R"({"inputs":[{"name":"x","datatype":"FP32"}]})"),
            "tensor 'x' must have 'shape', a list of integers");
  EXPECT_EQ(fault(input_json("FP32", "[]", "[1.5]")),
            "tensor 'x': a size in 'shape' is no integer");
  EXPECT_EQ(fault(input_json("FP32", "[]", "[18446744073709551615]")),
            "tensor 'x': a size in 'shape' is no integer");
  EXPECT_EQ(fault(R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1]}]})"),
            "tensor 'x' must have either 'data' or 'binary_data_size'");
  EXPECT_EQ(fault(R"({"id":1})"), "the request must have 'id', a string");
  EXPECT_EQ(fault(R"({"parameters":[]})"), "'parameters' must be an object");
  EXPECT_EQ(fault(R"({"parameters":{"binary_data_output":1}})"),
            "parameter 'binary_data_output' must be true or false");
  EXPECT_EQ(fault(R"({"parameters":{"priority":"high"}})"),
            "parameter 'priority' must be a number of 0 or more");
}

TEST(JsonCodec, ChecksBinarySizes) {
  const auto body = [](const std::string& size) {
    return R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":)" +
           size + "}}]}";
  };
  const auto fault = [&](const std::string& size, const std::string& binary, int more = 0) {
    const auto head = body(size);
    return refusal([&] { decode(head + binary, head.size() + static_cast<std::size_t>(more)); });
  };
  EXPECT_EQ(fault("3", "abc"), "");
  EXPECT_EQ(fault("3", "ab"), "tensor 'x': 'binary_data_size' is 3, but 2 bytes follow");
  EXPECT_EQ(fault("3", "abcd"), "1 bytes follow the last binary tensor");
  EXPECT_EQ(fault("-1", "abc"), "tensor 'x': 'binary_data_size' must be an integer of 0 or more");
  EXPECT_EQ(fault("3", "abc", 4).find("Inference-Header-Content-Length is"), 0U);
}

// Ten bytes of JSON can take a kilobyte of memory.
TEST(JsonCodec, RefusesJsonThatWouldGrow) {
  EXPECT_EQ(refusal([&] { (void)parse_json(std::string(100'000, '[')); }),
            "the JSON is nested too deeply");
  std::string many = "[0";
  for (int i = 0; i < 9'000'000; ++i) many += ",0";
  EXPECT_EQ(refusal([&] { (void)parse_json(many + "]"); }),
            "the JSON has more than 8388608 values: send tensors as binary data");
}

TEST(JsonCodec, OutputsMayBeBinaryOneByOne) {
  const auto decoded =
      decode(R"({"outputs":[{"name":"a","parameters":{"binary_data":true}},{"name":"b"}]})");
  EXPECT_EQ(decoded.request.outputs, (std::vector<std::string>{"a", "b"}));
  const std::string bytes = bytes_of(1.5F);
  const auto data = std::as_bytes(std::span(bytes));
  const auto encoded = encode_infer(
      {"m", "1", ""}, {{{"a", DataType::kFp32, {1}, data}, {"b", DataType::kFp32, {1}, data}}, {}},
      decoded.format);
  ASSERT_TRUE(encoded.json_bytes);
  const auto head = json::parse(encoded.body.substr(0, *encoded.json_bytes));
  EXPECT_EQ(head["outputs"][0]["parameters"]["binary_data_size"], 4);
  EXPECT_EQ(head["outputs"][1]["data"][0], 1.5);
  EXPECT_EQ(encoded.body.substr(*encoded.json_bytes), bytes);
}

TEST(JsonCodec, AnOutputThatJsonCannotHoldIsRefused) {
  const std::string bytes = bytes_of(1U) + "\xff";
  const Response binary{{{"y", DataType::kBytes, {1}, std::as_bytes(std::span(bytes))}}, {}};
  EXPECT_EQ(refusal([&] {
              (void)encode_infer({"m", "1", ""}, binary, {});
            }),
            "an output of type BYTES is not UTF-8: ask for binary data");
  const Response half{{{"y", DataType::kFp16, {1}, std::as_bytes(std::span("ab", 2))}}, {}};
  EXPECT_EQ(refusal([&] {
              (void)encode_infer({"m", "1", ""}, half, {});
            }),
            "tensor 'y': FP16 has no JSON form: use binary data");
}

TEST(Compression, InflatesWhatItDeflated) {
  std::string plain;
  for (int i = 0; i < 100'000; ++i) plain += std::to_string(i);
  for (const auto encoding : {Encoding::kGzip, Encoding::kDeflate}) {
    const auto packed = deflate(plain, encoding);
    EXPECT_LT(packed.size(), plain.size());
    EXPECT_EQ(inflate(packed, plain.size()), plain);
    EXPECT_NE(refusal([&] { (void)inflate(packed, plain.size() - 1); }), "");
    EXPECT_EQ(refusal([&] { (void)inflate(packed.substr(0, packed.size() / 2), plain.size()); }),
              "the body is not valid gzip or deflate data");
  }
  EXPECT_EQ(refusal([&] { (void)inflate("nonsense", 100); }),
            "the body is not valid gzip or deflate data");
  EXPECT_EQ(refusal([&] { (void)inflate("", 100); }), "the body is not valid gzip or deflate data");
}

TEST(Compression, ABombStopsAtTheLimit) {
  const auto bomb = deflate(std::string(64 << 20, '\0'), Encoding::kGzip);
  EXPECT_EQ(refusal([&] { (void)inflate(bomb, 1 << 20); }),
            "the inflated body has more than 1048576 bytes");
}

}  // namespace
}  // namespace sluice::server::api
