#pragma once
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "profiler/packs/pack.hpp"
#include "profiler/workers/worker_pool.hpp"

namespace sluice::profiler {

/// A network as its tasks, and how often each is called.
struct ImportedNetwork {
  Network network;
  std::vector<Task> tasks;

  [[nodiscard]] std::size_t weight(const std::string& task) const;
};

/// The server died or took too long. Another one has been started.
class ServerLost : public base::RunError {
 public:
  ServerLost(const std::string& what, bool timeout) : RunError(what), timeout_(timeout) {}
  [[nodiscard]] bool timeout() const { return timeout_; }

 private:
  bool timeout_;
};

/// A process could not load the tasks of the last network. No program is at fault, and no further
/// one can be made.
class NetworkLost : public base::RunError {
 public:
  using RunError::RunError;
};

/// `sluice programs serve`, which makes programs with TVM, in processes of its own. One of them
/// imports a network, the others load its tasks. After a ServerLost, the next call lets the process
/// that was started anew load them.
class ProgramServer {
 public:
  /// `processes` make the programs of apply() at the same time. Throws base::RunError if the server
  /// does not answer.
  explicit ProgramServer(std::size_t processes = 1);

  [[nodiscard]] const std::string& tvm() const { return tvm_; }
  /// All throw base::RunError with the server's line, ServerLost, or NetworkLost. `source`: empty
  /// for that which `sluice programs make` finds for the name.
  [[nodiscard]] ImportedNetwork import_network(const std::string& source, const std::string& name,
                                               std::int64_t batch, const std::string& target);
  /// The programs in the order of the indices; nothing for an index that the space refuses, or
  /// that ends the server: up to three of a call, then ServerLost. `want`: "source", "features",
  /// "kernels"; a source brings its kernels.
  [[nodiscard]] std::vector<std::optional<Program>> apply(const std::string& task,
                                                          const std::vector<std::uint64_t>& indices,
                                                          const std::vector<std::string>& want);
  /// TVM's own schedule for a task of a GPU, with "source". Its index is the size of the task's
  /// space, which is none of the space. Nothing if TVM has no schedule that can run, or if making
  /// it ends the server, which is reported on standard error.
  [[nodiscard]] std::optional<Program> default_program(const std::string& task);
  /// Writes a task's inputs, and the outputs of its unscheduled program on the CPU, as N.bin for
  /// each buffer. False if there are none.
  [[nodiscard]] bool write_reference(const std::string& task, const std::string& folder);
  struct Times {
    std::vector<double> seconds;  ///< Of a run in each repeat; empty if a run took more than 1 s.
    bool correct = false;
  };
  /// Times a program for the CPU.
  [[nodiscard]] Times time(const std::string& task, std::uint64_t index, int threads);

 private:
  [[nodiscard]] nlohmann::json ask_for(const nlohmann::json& request);
  /// Sets the answers that are null, by all processes, which first load the tasks of the last
  /// network. Throws the first failure when none is busy any more; then answers of lost processes
  /// are kLost, others may be null.
  void fill(const std::vector<nlohmann::json>& requests, std::vector<nlohmann::json>& answers);
  /// The answers to the requests. One whose process is lost is made again, alone; if that one is
  /// lost too, the answer has an error in place of the program.
  [[nodiscard]] std::vector<nlohmann::json> ask_past_losses(
      const std::vector<nlohmann::json>& requests);
  /// Lets each process that does not know the tasks of the last network load them.
  void load_where_unknown();
  /// Gives a request to an idle process. `answer` is set later, by wait_for_answer(); without one,
  /// `failure` is, if it is empty yet.
  void submit(std::size_t worker, nlohmann::json request, nlohmann::json& answer,
              std::exception_ptr& failure);

  WorkerPool pool_;
  std::int64_t last_id_ = 0;
  std::string tvm_;
  base::Fd tasks_;  ///< The tasks of the last network, saved by the process that imported it.
  nlohmann::json load_{};    ///< The request that loads tasks_; null if there is no network.
  std::vector<bool> knows_;  ///< Which process has no need of load_.
};

}  // namespace sluice::profiler
