#include "server/workload/empty_server.hpp"

// g++ 12 needs <utility> in front of asio.
#include <fmt/format.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server_builder.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "server/api/kserve.grpc.pb.h"
#include "server/api/lock_graph.hpp"

namespace sluice::server::workload {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using nlohmann::json;

constexpr const char* kInput = "input0";
constexpr const char* kOutput = "output0";
constexpr const char* kType = "FP32";

struct GrpcAnswers {
  grpc::ByteBuffer metadata;
  grpc::ByteBuffer infer;  ///< Copies share the bytes.
};

grpc::ByteBuffer encoded(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

GrpcAnswers grpc_answers(std::size_t bytes) {
  inference::ModelMetadataResponse metadata;
  auto* input = metadata.add_inputs();
  input->set_name(kInput);
  input->set_datatype(kType);
  for (int dimension = 0; dimension < 2; ++dimension) input->add_shape(-1);
  inference::ModelInferResponse infer;
  auto* output = infer.add_outputs();
  output->set_name(kOutput);
  output->set_datatype(kType);
  output->add_shape(static_cast<std::int64_t>(bytes / sizeof(float)));
  infer.add_raw_output_contents(std::string(bytes, '\0'));
  return {encoded(metadata), encoded(infer)};
}

/// A call of any method: its headers, its message, its answer.
class EmptyCall {
 public:
  static void await(grpc::AsyncGenericService& service, grpc::ServerCompletionQueue& queue,
                    const GrpcAnswers& answers) {
    auto call = std::make_shared<EmptyCall>(service, queue, answers);
    service.RequestCall(&call->context_, &call->stream_, &queue, &queue, call.get());
    call->self_ = call;
  }
  EmptyCall(grpc::AsyncGenericService& service, grpc::ServerCompletionQueue& queue,
            const GrpcAnswers& answers)
      : service_(service), queue_(queue), answers_(answers) {}

  void completed(bool ok) {
    const auto keep = std::move(self_);
    const Step step = std::exchange(next_, next_ == Step::kRead ? Step::kAnswer : Step::kEnd);
    if (step == Step::kRead) await(service_, queue_, answers_);
    if (!ok || step == Step::kEnd) return;
    self_ = keep;
    if (step == Step::kRead) return stream_.Read(&request_, this);
    const bool infer = context_.method().ends_with("/ModelInfer");
    stream_.WriteAndFinish(infer ? answers_.infer : answers_.metadata, {}, grpc::Status::OK, this);
  }

 private:
  enum class Step { kRead, kAnswer, kEnd };

  grpc::AsyncGenericService& service_;
  grpc::ServerCompletionQueue& queue_;
  const GrpcAnswers& answers_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer request_;
  Step next_ = Step::kRead;
  std::shared_ptr<EmptyCall> self_;  ///< Until the call has ended.
};

class EmptyGrpc {
 public:
  explicit EmptyGrpc(std::size_t bytes) : answers_(grpc_answers(bytes)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterAsyncGenericService(&service_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    if (!server_) throw base::RunError("cannot listen on 127.0.0.1 for gRPC");
  }
  [[nodiscard]] int port() const { return port_; }

  void run() {
    EmptyCall::await(service_, *queue_, answers_);
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) static_cast<EmptyCall*>(tag)->completed(ok);
  }

 private:
  const GrpcAnswers answers_;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

std::string http_answer(const std::string& json_text, std::size_t bytes) {
  return fmt::format(
             "HTTP/1.1 200 OK\r\nInference-Header-Content-Length: {}\r\nContent-Length: "
             "{}\r\n\r\n",
             json_text.size(), json_text.size() + bytes) +
         json_text + std::string(bytes, '\0');
}

class EmptyHttp {
 public:
  explicit EmptyHttp(std::size_t bytes) {
    const json input{{"name", kInput}, {"datatype", kType}, {"shape", {-1, -1}}};
    // Of the server and of each model.
    const json metadata{{"extensions", {"binary_tensor_data"}}, {"inputs", {input}}};
    metadata_ = http_answer(metadata.dump(), 0);
    const json output{{"name", kOutput},
                      {"datatype", kType},
                      {"shape", {bytes / sizeof(float)}},
                      {"parameters", {{"binary_data_size", bytes}}}};
    infer_ = http_answer(json{{"outputs", {output}}}.dump(), bytes);
  }
  [[nodiscard]] int port() const { return acceptor_.local_endpoint().port(); }

  [[noreturn]] void run() {
    while (true) {
      std::thread([this, socket = acceptor_.accept()]() mutable { serve(socket); }).detach();
    }
  }

 private:
  void serve(tcp::socket& socket) const {
    error_code error;
    socket.set_option(tcp::no_delay(true), error);
    std::string begin;  // The head, and what of the body came with it.
    std::string rest;   // Never made smaller, because growing it writes zeros.
    while (!error) {
      begin.clear();
      const std::size_t head =
          asio::read_until(socket, asio::dynamic_buffer(begin), "\r\n\r\n", error);
      if (error) return;
      const std::size_t have = begin.size() - head;
      const std::size_t left = body_bytes(begin) - have;
      if (rest.size() < left) rest.resize(left);
      asio::read(socket, asio::buffer(rest.data(), left), error);
      if (!error) {
        asio::write(socket, asio::buffer(begin.starts_with("GET") ? metadata_ : infer_), error);
      }
    }
  }

  /// Of the client of this program, which writes the length in this form.
  static std::size_t body_bytes(const std::string& head) {
    constexpr std::string_view kLength = "\r\nContent-Length: ";
    std::size_t bytes = 0;
    if (const auto found = head.find(kLength); found != std::string::npos) {
      const char* const number = head.data() + found + kLength.size();
      std::from_chars(number, head.data() + head.size(), bytes);
    }
    return bytes;
  }

  asio::io_context context_;
  tcp::acceptor acceptor_{context_, {asio::ip::address_v4::loopback(), 0}};
  std::string metadata_;
  std::string infer_;
};

}  // namespace

void run_empty_server(std::size_t answer_bytes) {
  switch_off_lock_graph();
  EmptyGrpc grpc(answer_bytes);
  EmptyHttp http(answer_bytes);
  const json ports{{"grpc_port", grpc.port()}, {"http_port", http.port()}};
  fmt::print("{}\n", ports.dump());
  std::fflush(stdout);
  const std::jthread calls([&] { grpc.run(); });
  http.run();
}

}  // namespace sluice::server::workload
