#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "profiler/pack.hpp"
#include "profiler/worker_pool.hpp"

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

/// `sluice programs serve`, which makes programs with TVM, in a process of its own. After a
/// ServerLost, the next call imports the last network again.
class ProgramServer {
 public:
  /// Throws base::RunError if the server does not answer.
  ProgramServer();
  /// The same with another command, for tests.
  explicit ProgramServer(std::vector<std::string> command);

  [[nodiscard]] const std::string& tvm() const { return tvm_; }
  /// All throw base::RunError with the server's line, or ServerLost. `source`: empty for that which
  /// `sluice programs make` finds for the name.
  [[nodiscard]] ImportedNetwork import_network(const std::string& source, const std::string& name,
                                               std::int64_t batch, const std::string& target);
  /// The programs in the order of the indices; nothing for an index that the space refuses.
  /// `want`: "source", "features".
  [[nodiscard]] std::vector<std::optional<Program>> apply(const std::string& task,
                                                          const std::vector<std::uint64_t>& indices,
                                                          const std::vector<std::string>& want);
  struct Times {
    std::vector<double> seconds;  ///< Of a run in each repeat; empty if a run took more than 1 s.
    bool correct = false;
  };
  /// Times a program for the CPU.
  [[nodiscard]] Times time(const std::string& task, std::uint64_t index, int threads);

 private:
  [[nodiscard]] nlohmann::json ask_for(nlohmann::json request);

  WorkerPool pool_;
  std::int64_t last_id_ = 0;
  std::string tvm_;
  nlohmann::json last_import_{};
  bool lost_ = false;  ///< The process does not know last_import_.
};

}  // namespace sluice::profiler
