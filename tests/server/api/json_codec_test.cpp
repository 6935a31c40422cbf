#include "server/api/json_codec.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "codec_text.hpp"

namespace sluice::server::api {
namespace {

using engine::DataType;
using nlohmann::json;
using test::bytes_of;
using test::refusal;
using test::text_of;

DecodedInfer decode(const std::string& body, std::optional<std::size_t> json_bytes = {}) {
  auto kept = std::make_shared<std::string>(body);
  return decode_infer({*kept, kept}, json_bytes, 1000);
}

/// One input of two values.
std::string input_json(const std::string& type, const std::string& data,
                       const std::string& shape = "[2]") {
  return R"({"inputs":[{"name":"x","datatype":")" + type + R"(","shape":)" + shape + R"(,"data":)" +
         data + "}]}";
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

// Prevents: clients with optional fields, which send null for those that are absent, are refused.
TEST(JsonCodec, NullIsAbsent) {
  const auto decoded = decode(
      R"({"id":null,"model_name":null,"parameters":null,"outputs":null,"inputs":[)"
      R"({"name":"x","datatype":"FP32","shape":[2],"parameters":null,"data":[1,2]},)"
      R"({"name":"y","datatype":"UINT8","shape":[1],"data":[1],"parameters":{"binary_data_size":null}}]})");
  EXPECT_EQ(decoded.request.id, "");
  EXPECT_EQ(decoded.request.inputs.size(), 2U);
  EXPECT_TRUE(decoded.request.outputs.empty());
  const auto others = decode(R"({"inputs":null,"outputs":[{"name":"a","parameters":null}],)"
                             R"("parameters":{"priority":null,"binary_data_output":null}})");
  EXPECT_EQ(others.request.outputs, std::vector<std::string>{"a"});
  EXPECT_EQ(others.request.priority, 0U);
  EXPECT_FALSE(others.format.is_binary("a"));
  const auto fault = [](const std::string& body) { return refusal([&] { decode(body); }); };
  EXPECT_EQ(fault("null"), "the request must be an object");
  EXPECT_EQ(fault(R"({"inputs":[{"name":null}]})"), "an input must have 'name', a string");
  EXPECT_EQ(fault(input_json("FP32", "[1,2]", "null")),
            "tensor 'x' must have 'shape', a list of integers");
  EXPECT_EQ(fault(input_json("FP32", "null")),
            "tensor 'x' must have either 'data' or 'binary_data_size'");
  EXPECT_EQ(fault(input_json("FP32", "[1,null]")), "tensor 'x': null is no FP32");
}

// Prevents: what Python's json writes for NaN and infinity is refused as no JSON.
TEST(JsonCodec, TakesNumbersThatJsonDoesNotHave) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const std::string data :
       {"[NaN,Infinity,-Infinity,1.5]", R"(["NaN","Infinity","-Infinity",1.5])"}) {
    const auto text = text_of(decode(input_json("FP32", data, "[4]")).request.inputs[0].data);
    float values[4];
    ASSERT_EQ(text.size(), sizeof(values));
    std::memcpy(values, text.data(), sizeof(values));
    EXPECT_TRUE(std::isnan(values[0]));
    EXPECT_EQ(values[1], kInf);
    EXPECT_EQ(values[2], -kInf);
    EXPECT_EQ(values[3], 1.5F);
  }
  // The words inside of texts stay.
  const auto texts =
      decode(R"({"id":"a \" NaN","inputs":[)"
             R"({"name":"NaN","datatype":"BYTES","shape":[1],"data":["-Infinity, \\"]},)"
             R"({"name":"x","datatype":"FP64","shape":[1],"data":[NaN]}]})");
  EXPECT_EQ(texts.request.id, "a \" NaN");
  EXPECT_EQ(texts.request.inputs[0].name, "NaN");
  EXPECT_EQ(text_of(texts.request.inputs[0].data), bytes_of(12U) + "-Infinity, \\");
  const auto fault = [](const std::string& type, const std::string& data) {
    return refusal([&] { decode(input_json(type, data)); });
  };
  EXPECT_EQ(fault("INT32", "[1,NaN]"), "tensor 'x': \"NaN\" is no INT32");
  EXPECT_EQ(fault("FP32", R"([1,"nan"])"), "tensor 'x': \"nan\" is no FP32");
  for (const char* bad : {"[1,NaN", "[1,nan]", "[1,+Infinity]", "[1,NaNa]", "[1,--Infinity]"}) {
    EXPECT_TRUE(fault("FP32", bad).starts_with("the JSON is not valid")) << bad;
  }
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

// Prevents: tensors that point into memory which is gone, and a body that stays for nothing.
TEST(JsonCodec, ABodyStaysOnlyIfTensorsAreInIt) {
  const auto owners = [](const std::string& head, const std::string& binary) {
    const auto body = std::make_shared<std::string>(head + binary);
    const auto decoded = decode_infer(
        {*body, body}, binary.empty() ? std::nullopt : std::optional(head.size()), 1000);
    return body.use_count();
  };
  EXPECT_EQ(owners(input_json("INT32", "[1,2]"), ""), 1);
  const std::string head =
      R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}}]})";
  EXPECT_EQ(owners(head, "abc"), 2);
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

}  // namespace
}  // namespace sluice::server::api
