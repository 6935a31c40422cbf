#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/api/request_rules.hpp"
#include "server/service/service.hpp"

/// Inference over HTTP: JSON, and the binary tensor extension. Throws Refusal.
namespace sluice::server::api {

/// Parses JSON that a client sent. Refuses more nesting or more values than a request has, because
/// a parsed value takes many times its bytes.
[[nodiscard]] nlohmann::json parse_json(std::string_view text);

/// The body of a request.
struct Body {
  std::string_view bytes;
  std::shared_ptr<const void> storage;  ///< Keeps `bytes` alive.
};

/// How the client wants the outputs.
struct OutputFormat {
  bool binary = false;                  ///< For outputs that `by_name` lacks.
  std::map<std::string, bool> by_name;  ///< Output: whether binary.

  [[nodiscard]] bool is_binary(const std::string& output) const;
};

struct DecodedInfer {
  Request request;
  OutputFormat format;
};

/// json_bytes: the header Inference-Header-Content-Length; nothing if all of the body is JSON. The
/// caller fills in the model and the version, which are in the path, and calls check_request().
[[nodiscard]] DecodedInfer decode_infer(const Body& body, std::optional<std::size_t> json_bytes,
                                        std::uint64_t headers_ns);

struct EncodedInfer {
  std::string body;
  std::optional<std::size_t> json_bytes;  ///< For Inference-Header-Content-Length.
};

[[nodiscard]] EncodedInfer encode_infer(const Echo& echo, const Response& response,
                                        const OutputFormat& format);

}  // namespace sluice::server::api
