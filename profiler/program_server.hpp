#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "profiler/pack.hpp"
#include "profiler/worker_pool.hpp"

namespace sluice::profiler {

/// A network as its tasks, and how often each is called.
struct ImportedNetwork {
  Network network;
  std::vector<Task> tasks;

  [[nodiscard]] std::size_t weight(const std::string& task) const;
};

/// `sluice programs serve`, which makes programs with TVM, in a process of its own.
class ProgramServer {
 public:
  /// Throws base::RunError if the server does not answer.
  ProgramServer();
  /// The same with another command, for tests.
  explicit ProgramServer(std::vector<std::string> command);

  [[nodiscard]] const std::string& tvm() const { return tvm_; }
  /// All throw base::RunError with the server's line.
  [[nodiscard]] ImportedNetwork import_network(const std::string& source, const std::string& name,
                                               std::int64_t batch, const std::string& target);
  /// The programs in the order of the indices; nothing for an index that the space refuses.
  /// `want`: "source", "features".
  [[nodiscard]] std::vector<std::optional<Program>> apply(const std::string& task,
                                                          const std::vector<std::uint64_t>& indices,
                                                          const std::vector<std::string>& want);
  struct Times {
    std::vector<double> seconds;
    bool correct = false;
  };
  /// Times a program for the CPU.
  [[nodiscard]] Times time(const std::string& task, std::uint64_t index, int threads);

 private:
  [[nodiscard]] nlohmann::json ask_for(nlohmann::json request);

  WorkerPool pool_;
  std::int64_t last_id_ = 0;
  std::string tvm_;
};

}  // namespace sluice::profiler
