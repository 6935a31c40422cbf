#include "server/api/http_infer.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "server/api/call_state.hpp"
#include "server/api/compression.hpp"
#include "server/api/http_body.hpp"
#include "server/api/refusal.hpp"
#include "server/api/request_rules.hpp"
#include "server/api/trace.hpp"

namespace sluice::server::api {
namespace {

constexpr const char* kJsonBytesHeader = "Inference-Header-Content-Length";

/// The bytes of JSON in a body; nothing: all of it.
std::optional<std::size_t> json_bytes(const HttpHead& head) {
  const std::string& text = head.inference_header_length;
  if (text.empty()) return std::nullopt;
  std::size_t bytes = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, bytes);
  if (read.ec != std::errc() || read.ptr != end) {
    refuse(std::string(kJsonBytesHeader) + " must be an integer of 0 or more");
  }
  return bytes;
}

HttpReply reply(const Echo& echo, const Response& response, const OutputFormat& format) {
  EncodedInfer made = encode_infer(echo, response, format);
  HttpReply reply;
  reply.body = std::move(made.body);
  if (made.json_bytes) {
    reply.content_type = "application/octet-stream";
    reply.headers.emplace_back(kJsonBytesHeader, std::to_string(*made.json_bytes));
  }
  return reply;
}

/// The work of encoding a response. compressed: it may be.
std::size_t encoding_work(const Response& response, const OutputFormat& format, bool compressed) {
  constexpr std::size_t kTextPerByte = 3;  // Of an FP32 number.
  std::size_t text = 0;
  std::size_t raw = 0;
  for (const engine::Tensor& output : response.outputs) {
    const bool binary = format.is_binary(output.name);
    if (!binary) text += kTextPerByte * output.data.size();
    if (binary) (compressed ? text : raw) += output.data.size();
  }
  return CodecPool::work_of(text, raw);
}

class InferCall final : public HttpCall, public std::enable_shared_from_this<InferCall> {
 public:
  InferCall(Service& service, CodecPool& pool, HttpHead head, HttpTarget target,
            std::size_t max_bytes)
      : service_(service),
        pool_(pool),
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
    guard(traced, [&] {
      if (content_encoding(head_.content_encoding) == Encoding::kIdentity) {
        return decode(body, traced);
      }
      // A small body may become a large one.
      if (body.bytes.size() < CodecPool::kLarge) {
        const auto small = inflated(body, std::min(max_bytes_, CodecPool::kLarge));
        if (small) return decode(*small, traced);
      }
      post(body.bytes.size(), traced, [this, body, traced] {
        const auto plain = inflated(body, max_bytes_);
        if (!plain) {
          refuse("the inflated body has more than " + std::to_string(max_bytes_) + " bytes");
        }
        decode(*plain, traced);
      });
    });
  }
  void cancel() override { cancel_.cancel(); }

 private:
  /// Runs `act`; a refusal is counted, and answered.
  void guard(const ReplyDone& done, const std::function<void()>& act) {
    try {
      act();
    } catch (const Refusal& refusal) {
      service_.refused(target_.model, with_reason(refusal.status, "malformed"));
      done([status = refusal.status] { return error_reply(status); });
    }
  }

  /// Runs `act` in the pool, unless the client is gone by then.
  void post(std::size_t work, const ReplyDone& done, std::function<void()> act) {
    pool_.post(work, [self = shared_from_this(), done, act = std::move(act)] {
      self->guard(done, [&] {
        if (self->cancel_.cancelled()) {
          throw Refusal{{Code::kCancelled, "the client has left", 0, "client"}};
        }
        act();
      });
    });
  }

  [[nodiscard]] std::optional<Body> inflated(const Body& body, std::size_t max_bytes) const {
    return inflated_body(body, head_.content_encoding, max_bytes, service_.memory());
  }

  void decode(const Body& body, const ReplyDone& done) {
    const std::size_t all = body.bytes.size();
    const std::size_t text = std::min(json_bytes(head_).value_or(all), all);
    const std::size_t work = CodecPool::work_of(text, all - text);
    if (work < CodecPool::kLarge) return infer(body, done);
    post(work, done, [this, body, done] { infer(body, done); });
  }

  void infer(const Body& body, const ReplyDone& done) {
    DecodedInfer decoded = decode_infer(body, json_bytes(head_), announcement_.headers_ns());
    Request& request = decoded.request;
    request.model = target_.model;
    request.version = target_.version;
    request.trace = trace_;
    check_request(request);
    count_memory(request, ByteBudget::Share(service_.memory()));
    request.announced = announcement_.take();
    auto answered = [done, &pool = pool_, &memory = service_.memory(), echo = echo_of(request),
                     format = std::move(decoded.format), accept = head_.accept_encoding](
                        const Status& status, const Response& response) {
      if (!status.ok()) return done([status] { return error_reply(status); });
      auto held = std::make_shared<Response>(response);
      const std::size_t work = encoding_work(response, format, !accept.empty());
      const MakeReply make = [=, &memory] {
        return guarded([&] {
          HttpReply made = encoded(reply(echo, *held, format), accept);
          *held = {};  // Its memory is free for the reply.
          made.memory = counted(nullptr, share_of(memory, made.body.size()));
          return made;
        });
      };
      answer(pool, work, make, done);
    };
    cancel_.set(service_.infer(std::move(request), std::move(answered)));
  }

  Service& service_;
  CodecPool& pool_;
  HttpHead head_;
  HttpTarget target_;
  std::size_t max_bytes_;
  std::string trace_;
  Announcement announcement_;
  CancelOnce cancel_;
};

}  // namespace

std::shared_ptr<HttpCall> http_infer_call(Service& service, CodecPool& pool, const HttpHead& head,
                                          HttpTarget target, std::size_t max_bytes) {
  return std::make_shared<InferCall>(service, pool, head, std::move(target), max_bytes);
}

}  // namespace sluice::server::api
