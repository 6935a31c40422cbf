#include "server/api/http_api.hpp"

#include <algorithm>

#include "base/json_text.hpp"
#include "server/api/compression.hpp"
#include "server/api/descriptions.hpp"
#include "server/api/http_body.hpp"
#include "server/api/http_infer.hpp"
#include "server/api/http_json.hpp"
#include "server/api/http_target.hpp"
#include "server/api/refusal.hpp"

namespace sluice::server::api {
namespace {

using nlohmann::json;

/// Of the body of a call that is no inference, also when inflated. It is parsed in the thread of
/// the connection.
constexpr std::size_t kMostOtherBytes = CodecPool::kLarge;

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

/// A call that is answered at once, in the connection's thread.
class QuickCall final : public HttpCall {
 public:
  using Make = std::function<HttpReply(std::string_view)>;

  QuickCall(HttpHead head, CodecPool& pool, const ByteBudget& memory, Make make)
      : head_(std::move(head)), pool_(pool), memory_(memory), make_(std::move(make)) {}

  void run(Body body, ReplyDone done) override {
    auto reply = std::make_shared<HttpReply>(guarded([&] {
      const Body plain = plain_body(body, head_.content_encoding, kMostOtherBytes, memory_);
      return make_(plain.bytes);
    }));
    // Compressing is work, sending is none.
    const std::size_t work = head_.accept_encoding.empty() ? 0 : reply->body.size();
    answer(
        pool_, work,
        [reply, accept = head_.accept_encoding] { return encoded(std::move(*reply), accept); },
        done);
  }

 private:
  HttpHead head_;
  CodecPool& pool_;
  const ByteBudget& memory_;
  Make make_;
};

/// A call that blocks.
class SlowCall final : public HttpCall {
 public:
  SlowCall(HttpHead head, Workers& workers, const ByteBudget& memory,
           std::function<void(const json&)> check, std::function<Status()> act)
      : head_(std::move(head)),
        workers_(workers),
        memory_(memory),
        check_(std::move(check)),
        act_(std::move(act)) {}

  void run(Body body, ReplyDone done) override {
    try {
      const Body plain = plain_body(body, head_.content_encoding, kMostOtherBytes, memory_);
      check_(plain.bytes.empty() ? json::object() : parse_json(plain.bytes));
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
  HttpHead head_;
  Workers& workers_;
  const ByteBudget& memory_;
  std::function<void(const json&)> check_;
  std::function<Status()> act_;
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
  if (body.is_null()) return;
  if (!body.is_object()) refuse("the request must be an object");
  const auto parameters = body.find("parameters");
  if (parameters == body.end() || parameters->is_null()) return;
  if (!parameters->is_object()) refuse("'parameters' must be an object");
  for (const auto& [name, value] : parameters->items()) check_load_parameter(name);
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
    HttpReply reply = error_reply(415, refusal.status.message);
    reply.headers.emplace_back("Accept-Encoding", "gzip, deflate");
    throw reply;
  }
}

}  // namespace

void HttpApi::refused(const std::string& target, unsigned status, std::string_view reason) {
  const HttpTarget parsed = parse_target(target);
  if (parsed.route == Route::kInfer)
    service_.refused(parsed.model, {code_of(status), "", 0, reason});
}

std::size_t HttpApi::max_body_bytes(const std::string& target) const {
  const bool inference = parse_target(target).route == Route::kInfer;
  return inference ? max_request_bytes_ : std::min(max_request_bytes_, kMostOtherBytes);
}

std::shared_ptr<HttpCall> HttpApi::begin(const HttpHead& head) {
  HttpTarget target = parse_target(head.target);
  check_head(head, target, access_);
  Service& service = service_;
  switch (target.route) {
    case Route::kInfer:
      return http_infer_call(service, pool_, head, std::move(target), max_request_bytes_);
    case Route::kLoad:
      return std::make_shared<SlowCall>(head, workers_, service.memory(), check_load,
                                        [&service, target] { return service.load(target.model); });
    case Route::kUnload:
      return std::make_shared<SlowCall>(
          head, workers_, service.memory(), [](const json&) {},
          [&service, target] { return service.unload(target.model); });
    default:
      return std::make_shared<QuickCall>(
          head, pool_, service.memory(),
          [&service, target, post = head.method == "POST"](std::string_view body) {
            return describe(service, target, post, body);
          });
  }
}

}  // namespace sluice::server::api
