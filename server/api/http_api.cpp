#include "server/api/http_api.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/json_text.hpp"
#include "server/api/call_state.hpp"
#include "server/api/compression.hpp"
#include "server/api/descriptions.hpp"
#include "server/api/http_json.hpp"
#include "server/api/http_target.hpp"
#include "server/api/refusal.hpp"
#include "server/api/request_rules.hpp"
#include "server/api/trace.hpp"

namespace sluice::server::api {
namespace {

using nlohmann::json;

constexpr const char* kJsonBytesHeader = "Inference-Header-Content-Length";
/// A smaller body gains nothing.
constexpr std::size_t kWorthDeflating = 512;

unsigned http_status(Code code) {
  switch (code) {
    case Code::kOk:
      return 200;
    case Code::kInvalidArgument:
      return 400;
    case Code::kNotFound:
      return 404;
    case Code::kUnavailable:
      return 503;
    case Code::kResourceExhausted:
      return 429;
    case Code::kDeadlineExceeded:
      return 504;
    case Code::kCancelled:
      return 499;
    case Code::kUnimplemented:
      return 501;
    case Code::kUnauthenticated:
      return 401;
    case Code::kPermissionDenied:
      return 403;
    case Code::kInternal:
      break;
  }
  return 500;
}

/// The code under which a refusal of an inference by HTTP is counted.
Code code_of(unsigned status) {
  switch (status) {
    case 401:
      return Code::kUnauthenticated;
    case 408:
      return Code::kDeadlineExceeded;
    case 413:
    case 429:
      return Code::kResourceExhausted;
    case 417:
    case 501:
      return Code::kUnimplemented;
    default:
      return Code::kInvalidArgument;
  }
}

HttpReply json_reply(const json& body) {
  HttpReply reply;
  reply.body = base::json_text(body);
  return reply;
}

HttpReply probe_reply(const json& body, bool good) {
  HttpReply reply = json_reply(body);
  reply.status = good ? 200 : 503;
  return reply;
}

HttpReply text_reply(std::string text) {
  HttpReply reply;
  reply.body = std::move(text);
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return reply;
}

/// Inflates the body of a request. A refusal here is one of the body, not of its encoding.
Body decoded(Body body, const HttpHead& head, std::size_t max_bytes, const ByteBudget& memory) {
  if (content_encoding(head.content_encoding) == Encoding::kIdentity) return body;
  auto plain = std::make_shared<std::string>(inflate(body.bytes, max_bytes));
  const std::string_view bytes = *plain;
  return {bytes, counted(std::move(plain), share_of(memory, bytes.size()))};
}

HttpReply encoded(HttpReply reply, const std::string& accept) {
  const Encoding encoding = accepted_encoding(accept);
  if (encoding == Encoding::kIdentity || reply.body.size() < kWorthDeflating) return reply;
  reply.body = deflate(reply.body, encoding);
  reply.headers.emplace_back("Content-Encoding", to_string(encoding));
  return reply;
}

/// Runs `make`; a refusal becomes its reply.
HttpReply guarded(const MakeReply& make) {
  try {
    return make();
  } catch (const Refusal& refusal) {
    return error_reply(refusal.status);
  }
}

/// A call that is answered at once, in the connection's thread.
class QuickCall final : public HttpCall {
 public:
  QuickCall(HttpHead head, std::size_t max_bytes, const ByteBudget& memory,
            std::function<HttpReply(std::string_view)> make)
      : head_(std::move(head)), max_bytes_(max_bytes), memory_(memory), make_(std::move(make)) {}

  void run(Body body, ReplyDone done) override {
    auto reply = guarded([&] {
      const Body plain = decoded(std::move(body), head_, max_bytes_, memory_);
      return encoded(make_(plain.bytes), head_.accept_encoding);
    });
    done([reply = std::move(reply)] { return reply; });
  }

 private:
  HttpHead head_;
  std::size_t max_bytes_;
  const ByteBudget& memory_;
  std::function<HttpReply(std::string_view)> make_;
};

/// A call that blocks.
class SlowCall final : public HttpCall {
 public:
  SlowCall(Workers& workers, std::function<void(const json&)> check, std::function<Status()> act)
      : workers_(workers), check_(std::move(check)), act_(std::move(act)) {}

  void run(Body body, ReplyDone done) override {
    try {
      check_(body.bytes.empty() ? json::object() : parse_json(body.bytes));
    } catch (const Refusal& refusal) {
      return done([status = refusal.status] { return error_reply(status); });
    }
    const Status posted = workers_.post([act = act_, done] {
      const Status status = act();
      done([status] { return status.ok() ? HttpReply{} : error_reply(status); });
    });
    if (!posted.ok()) done([posted] { return error_reply(posted); });
  }

 private:
  Workers& workers_;
  std::function<void(const json&)> check_;
  std::function<Status()> act_;
};

class InferCall final : public HttpCall {
 public:
  InferCall(Service& service, HttpHead head, HttpTarget target, std::size_t max_bytes)
      : service_(service),
        head_(std::move(head)),
        target_(std::move(target)),
        max_bytes_(max_bytes),
        trace_(next_traceparent(head_.traceparent)),
        announcement_(service, target_.model, head_.content_length) {}

  void run(Body body, ReplyDone done) override {
    const ReplyDone traced = [done = std::move(done), trace = trace_](MakeReply make) {
      if (trace.empty()) return done(std::move(make));
      done([make = std::move(make), trace] {
        HttpReply reply = make();
        reply.headers.emplace_back("traceparent", trace);
        return reply;
      });
    };
    try {
      infer(decoded(std::move(body), head_, max_bytes_, service_.memory()), traced);
    } catch (const Refusal& refusal) {
      service_.refused(target_.model, with_reason(refusal.status, "malformed"));
      traced([status = refusal.status] { return error_reply(status); });
    }
  }
  void cancel() override { cancel_.cancel(); }

 private:
  void infer(const Body& body, const ReplyDone& done) {
    DecodedInfer decoded = decode_infer(body, json_bytes(), announcement_.headers_ns());
    Request& request = decoded.request;
    request.model = target_.model;
    request.version = target_.version;
    request.trace = trace_;
    check_request(request);
    count_memory(request, ByteBudget::Share(service_.memory()));
    request.announced = announcement_.take();
    auto answer = [done, &memory = service_.memory(), echo = echo_of(request),
                   format = std::move(decoded.format),
                   accept = head_.accept_encoding](const Status& status, const Response& response) {
      if (!status.ok()) return done([status] { return error_reply(status); });
      auto held = std::make_shared<Response>(response);
      done([=, &memory] {
        return guarded([&] {
          HttpReply made = encoded(reply(echo, *held, format), accept);
          *held = {};  // Its memory is free for the reply.
          made.memory = counted(nullptr, share_of(memory, made.body.size()));
          return made;
        });
      });
    };
    cancel_.set(service_.infer(std::move(request), std::move(answer)));
  }

  [[nodiscard]] std::optional<std::size_t> json_bytes() const {
    const std::string& text = head_.inference_header_length;
    if (text.empty()) return std::nullopt;
    std::size_t bytes = 0;
    const char* end = text.data() + text.size();
    if (std::from_chars(text.data(), end, bytes).ptr != end) {
      refuse(std::string(kJsonBytesHeader) + " must be an integer of 0 or more");
    }
    return bytes;
  }

  static HttpReply reply(const Echo& echo, const Response& response, const OutputFormat& format) {
    EncodedInfer made = encode_infer(echo, response, format);
    HttpReply reply;
    reply.body = std::move(made.body);
    if (made.json_bytes) {
      reply.content_type = "application/octet-stream";
      reply.headers.emplace_back(kJsonBytesHeader, std::to_string(*made.json_bytes));
    }
    return reply;
  }

  Service& service_;
  HttpHead head_;
  HttpTarget target_;
  std::size_t max_bytes_;
  std::string trace_;
  Announcement announcement_;
  CancelOnce cancel_;
};

HttpReply model_ready(const Service& service, const HttpTarget& target) {
  const bool ready = service.model_ready(target.model, target.version);
  HttpReply reply = probe_reply({{"name", target.model}, {"ready", ready}}, ready);
  if (!ready && !is_known(service, target.model)) reply.status = 404;
  return reply;
}

bool only_ready(const json& body) {
  return body.is_object() && body.contains("ready") && body["ready"] == true;
}

HttpReply set_scheduler(Service& service, std::string_view body) {
  const json value = parse_json(body);
  if (!value.is_object() || !value.contains("policy") || !value["policy"].is_string()) {
    refuse("the request must have 'policy', a string");
  }
  const Status status = service.set_scheduler(value["policy"].get<std::string>());
  if (!status.ok()) return error_reply(status);
  return json_reply({{"policy", service.scheduler()}});
}

/// Of a route that is answered at once.
HttpReply describe(Service& service, const HttpTarget& target, bool post, std::string_view body) {
  switch (target.route) {
    case Route::kServer:
      return json_reply(server_json());
    case Route::kLive:
      return probe_reply({{"live", service.live()}}, service.live());
    case Route::kReady: {
      const bool ready = service.ready();
      return probe_reply({{"ready", ready}}, ready);
    }
    case Route::kModel:
      return json_reply(metadata_json(model_metadata(service, target.model, target.version)));
    case Route::kModelReady:
      return model_ready(service, target);
    case Route::kModelConfig:
      return json_reply(config_json(model_metadata(service, target.model, target.version)));
    case Route::kModelStatistics:
    case Route::kAllStatistics:
      return json_reply(statistics_json(model_statistics(service, target.model, target.version)));
    case Route::kIndex:
      return json_reply(
          index_json(repository_index(service, !body.empty() && only_ready(parse_json(body)))));
    case Route::kScheduler:
      return post ? set_scheduler(service, body) : json_reply({{"policy", service.scheduler()}});
    case Route::kStatus:
      return json_reply(service.status());
    case Route::kMetrics:
      return text_reply(service.metrics());
    default:
      return error_reply(500, "no answer for this path");
  }
}

void check_load(const json& body) {
  if (!body.is_object() || !body.contains("parameters")) return;
  for (const auto& [name, value] : body["parameters"].items()) check_load_parameter(name);
}

void check_head(const HttpHead& head, const HttpTarget& target, const Access& access) {
  const Right right = right_of(target.route, head.method);
  if (const Status status = check_access(access, right, head.authorization); !status.ok()) {
    HttpReply reply = error_reply(status);
    if (reply.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
    throw reply;
  }
  // A browser says in the name of which page it calls: any page may call 127.0.0.1.
  if (right == Right::kControl && !head.origin.empty()) {
    throw error_reply(403, "control calls are not taken from web pages (Origin)");
  }
  if (target.route == Route::kNone) throw error_reply(404, "no such path: " + head.target);
  if (target.route == Route::kNotServed) throw error_reply(501, head.target + " is not served");
  if (!takes(target.route, head.method)) {
    HttpReply reply = error_reply(405, head.target + " does not take " + head.method);
    reply.headers.emplace_back("Allow", methods(target.route));
    throw reply;
  }
  try {
    (void)content_encoding(head.content_encoding);
  } catch (const Refusal& refusal) {
    throw error_reply(415, refusal.status.message);
  }
}

}  // namespace

HttpReply error_reply(unsigned status, const std::string& message) {
  HttpReply reply = json_reply({{"error", message}});
  reply.status = status;
  return reply;
}

HttpReply error_reply(const Status& status) {
  HttpReply reply = error_reply(http_status(status.code), shortened(status.message));
  if (status.code == Code::kResourceExhausted && status.retry_after_ms > 0) {
    const auto ms = std::ceil(status.retry_after_ms);
    reply.headers.emplace_back("Retry-After",
                               std::to_string(static_cast<std::int64_t>(std::ceil(ms / 1000))));
    reply.headers.emplace_back("retry-after-ms", std::to_string(static_cast<std::int64_t>(ms)));
  }
  return reply;
}

void HttpApi::refused(const std::string& target, unsigned status, std::string_view reason) {
  const HttpTarget parsed = parse_target(target);
  if (parsed.route == Route::kInfer)
    service_.refused(parsed.model, {code_of(status), "", 0, reason});
}

std::shared_ptr<HttpCall> HttpApi::begin(const HttpHead& head) {
  HttpTarget target = parse_target(head.target);
  check_head(head, target, access_);
  Service& service = service_;
  switch (target.route) {
    case Route::kInfer:
      return std::make_shared<InferCall>(service, head, std::move(target), max_request_bytes_);
    case Route::kLoad:
      return std::make_shared<SlowCall>(workers_, check_load,
                                        [&service, target] { return service.load(target.model); });
    case Route::kUnload:
      return std::make_shared<SlowCall>(
          workers_, [](const json&) {},
          [&service, target] { return service.unload(target.model); });
    default:
      return std::make_shared<QuickCall>(
          head, max_request_bytes_, service.memory(),
          [&service, target, post = head.method == "POST"](std::string_view body) {
            return describe(service, target, post, body);
          });
  }
}

}  // namespace sluice::server::api
