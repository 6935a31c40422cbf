#include "server/workload/train_jobs.hpp"

#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "base/clock.hpp"
#include "server/api/colserve.grpc.pb.h"

namespace sluice::server::workload {
namespace {

/// A server needs at most about 5 s to end a trainer.
constexpr std::uint64_t kPatienceNs = 15'000'000'000;

std::string new_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

class GrpcTrainJobs final : public TrainJobs {
 public:
  GrpcTrainJobs(const ClientOptions& options, const std::vector<std::string>& models,
                const std::string& args, bool again)
      : args_(args), again_(again), summaries_(models.size()), open_(models.size()) {
    grpc::ChannelArguments arguments;
    // A proxy of the environment is for other hosts.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    stub_ = colserve::ColServe::NewStub(
        grpc::CreateCustomChannel(options.host + ":" + std::to_string(options.port),
                                  grpc::InsecureChannelCredentials(), arguments));
    for (std::size_t i = 0; i < models.size(); ++i) {
      summaries_[i].model = models[i];
      threads_.emplace_back([this, &summary = summaries_[i]] { run(summary); });
    }
  }
  GrpcTrainJobs(const GrpcTrainJobs&) = delete;
  GrpcTrainJobs& operator=(const GrpcTrainJobs&) = delete;
  ~GrpcTrainJobs() override { static_cast<void>(stop()); }

  bool ended() const override { return open_ == 0; }

  std::vector<TrainSummary> stop() override {
    stopping_ = true;
    const std::uint64_t give_up_ns = base::monotonic_ns() + kPatienceNs;
    while (!ended()) {
      for (const TrainSummary& summary : summaries_) stop_job(summary.model);
      if (base::monotonic_ns() > give_up_ns) cancel_all();
      // A job that was on its way to the server is stopped the next time.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return summaries_;
  }

 private:
  void run(TrainSummary& summary) {
    while (!stopping_) {
      colserve::TrainRequest request;
      request.set_model(summary.model);
      request.set_args(args_);
      request.set_id(id_);
      colserve::TrainResult result;
      grpc::ClientContext context;
      set_call(summary, &context);
      const std::uint64_t begin = base::monotonic_ns();
      const grpc::Status status = stub_->Train(&context, request, &result);
      set_call(summary, nullptr);
      if (!status.ok()) {
        if (stopping_) {
          ++summary.stopped;
        } else {
          summary.error = status.error_message();
        }
        break;
      }
      summary.seconds.push_back(static_cast<double>(base::monotonic_ns() - begin) / 1e9);
      if (!again_) break;
    }
    --open_;
  }

  void set_call(const TrainSummary& summary, grpc::ClientContext* call) {
    const std::lock_guard lock(mutex_);
    calls_[&summary] = call;
  }

  void cancel_all() {
    const std::lock_guard lock(mutex_);
    for (const auto& [summary, call] : calls_) {
      if (call != nullptr) call->TryCancel();
    }
  }

  void stop_job(const std::string& model) {
    colserve::TrainRequest request;
    request.set_model(model);
    request.set_id(id_);
    colserve::TrainResult result;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
    static_cast<void>(stub_->TrainStop(&context, request, &result));
  }

  std::unique_ptr<colserve::ColServe::Stub> stub_;
  const std::string args_;
  const std::string id_ = new_id();  ///< Other clients may run jobs of the same names.
  const bool again_;
  std::vector<TrainSummary> summaries_;  ///< Each is its thread's until that has ended.
  std::atomic<std::size_t> open_;        ///< Threads that have not ended.
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;  ///< Guards calls_.
  std::map<const TrainSummary*, grpc::ClientContext*> calls_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<TrainJobs> begin_train_jobs(const ClientOptions& options,
                                            const std::vector<std::string>& models,
                                            const std::string& args, bool again) {
  return std::make_unique<GrpcTrainJobs>(options, models, args, again);
}

}  // namespace sluice::server::workload
