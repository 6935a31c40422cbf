#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "server/service/byte_budget.hpp"
#include "server/service/service.hpp"

namespace sluice::test {

/// A server without a GPU, a queue or a scheduler: its models answer as the tests need.
///   echo      each input comes back as an output of the same name
///   add       OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1, INT32 [16]
///   slow      as echo, after 50 ms, or as cancelled when the client has gone before; with the id
///             "deaf" after 300 ms, whether the client has gone or not
///   stuck     answers only when it is cancelled; its load waits for end_loads()
///   refusing  RESOURCE_EXHAUSTED, try again after 1500 ms
///   failing   the status whose number is the id of the request
///   big       one output FP32 [1,1000000], or RESOURCE_EXHAUSTED if it does not fit into the
///   memory
/// A request with the id "keeps the thread" does not return from infer() before end_loads().
class FakeService final : public server::Service {
 public:
  /// max_bytes: of requests and responses.
  explicit FakeService(std::uint64_t max_bytes = std::uint64_t{1} << 40);
  /// Ends the queued requests.
  ~FakeService() override;

  std::uint64_t headers(const std::string& model, std::uint64_t bytes) override;
  void forget(std::uint64_t announced) override;
  [[nodiscard]] const server::ByteBudget& memory() const override { return memory_; }
  std::shared_ptr<server::Cancellation> infer(server::Request request, server::Done done) override;
  void refused(const std::string& model, const server::Status& status) override;
  [[nodiscard]] bool live() const override { return true; }
  [[nodiscard]] bool ready() const override { return ready_; }
  [[nodiscard]] bool model_ready(const std::string& model,
                                 const std::string& version) const override;
  [[nodiscard]] std::optional<server::ModelMetadata> metadata(
      const std::string& model, const std::string& version) const override;
  [[nodiscard]] std::optional<std::vector<server::ModelStatistics>> statistics(
      const std::string& model) const override;
  [[nodiscard]] std::vector<server::RepositoryEntry> repository() const override;
  server::Status load(const std::string& model) override;
  server::Status unload(const std::string& model) override;
  /// The job "fails" exits with its arguments, "waits" until it is stopped, any other one has
  /// finished at once.
  void train(const server::TrainRequest& request, server::TrainDone done) override;
  [[nodiscard]] server::Status stop_training(const std::string& job,
                                             const std::string& id) override;
  [[nodiscard]] std::string scheduler() const override;
  server::Status set_scheduler(const std::string& name) override;
  [[nodiscard]] nlohmann::json status() const override;
  [[nodiscard]] std::string metrics() const override;
  void shut_down() override;

  /// "MODEL CODE REASON" of each refusal before infer().
  [[nodiscard]] std::vector<std::string> refusals() const;
  void set_ready(bool ready) { ready_ = ready; }
  /// What the headers of a request said.
  struct Headers {
    std::string model;
    std::uint64_t bytes = 0;
  };
  /// The first requests, without their tensors.
  [[nodiscard]] std::vector<server::Request> requests() const;
  [[nodiscard]] std::vector<Headers> announced() const;
  /// Requests that have a headers() and neither an infer() nor a forget().
  [[nodiscard]] std::size_t open_announcements() const;
  /// Ids that were ended twice or never given. Must be 0.
  [[nodiscard]] std::size_t wrong_announcements() const;
  /// Requests that were cancelled before they were answered.
  [[nodiscard]] std::size_t cancelled() const;
  /// Requests that infer() took and that have no answer yet.
  [[nodiscard]] std::size_t unanswered() const;
  [[nodiscard]] bool shutting_down() const;
  /// Jobs "waits" that are not stopped yet.
  [[nodiscard]] std::size_t training() const;
  /// Loads of the model "stuck" that wait.
  [[nodiscard]] std::size_t loading() const;
  /// They end, and no later one waits.
  void end_loads();

 private:
  struct Pending;
  class Handle;

  void end_announcement(std::uint64_t id);
  void answer_slow_requests();
  void cancel(const std::shared_ptr<Pending>& pending);
  std::shared_ptr<server::Cancellation> wait(server::Request request, server::Done done,
                                             std::chrono::milliseconds delay);
  void answer_big(const server::Done& done) const;
  void count(const std::string& model, const server::Status& status);

  const server::ByteBudget memory_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_id_ = 1;
  std::set<std::uint64_t> open_;
  std::size_t wrong_ = 0;
  std::size_t cancelled_ = 0;
  std::vector<server::Request> requests_;
  std::vector<Headers> headers_;
  std::map<std::string, server::ModelStatistics> statistics_;
  std::set<std::string> unloaded_;
  std::size_t loading_ = 0;
  bool loads_end_ = false;
  std::set<std::shared_ptr<Pending>> pending_;
  std::vector<std::pair<std::string, server::TrainDone>> waiting_jobs_;  ///< By their ids.
  std::string scheduler_ = "EDF";
  bool shutting_down_ = false;
  bool ending_ = false;
  std::atomic<bool> ready_ = true;
  std::vector<std::string> refusals_;
  std::jthread answering_;
};

}  // namespace sluice::test
