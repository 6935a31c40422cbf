#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// Child processes that answer each line on their standard input with one line on their standard
/// output, both objects in JSON. An answer has "ok"; if that is false, "error" says why in one
/// line, and "code" has the MeasureError where the child knows one. Parts of an answer that can
/// fail on their own have the same "error" and "code". The next request replaces a child that died
/// or took too long.
namespace sluice::profiler {

/// How a request ended.
struct WorkerAnswer {
  enum class How { kAnswered, kDied, kTimeout };
  How how = How::kAnswered;
  std::string text;  ///< The answer; after a death, how the child ended.
};

using OnAnswer = std::function<void(const WorkerAnswer&)>;

/// Workers that keep this machine busy: one for each processor.
[[nodiscard]] std::size_t processors();

class WorkerPool {
 public:
  /// Starts one child for each command. args[0] is the program's path. `limit_s`: a child that
  /// works longer on a request is killed. Children die with this process. Throws base::RunError.
  WorkerPool(std::vector<std::vector<std::string>> commands, double limit_s);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  [[nodiscard]] std::size_t size() const { return workers_.size(); }
  [[nodiscard]] std::size_t busy() const;
  [[nodiscard]] bool busy(std::size_t worker) const;
  /// A worker without a request, or size().
  [[nodiscard]] std::size_t idle() const;

  /// Sends a line without an end to an idle worker. `done` is called once, by wait_for_answer().
  void submit(std::size_t worker, const std::string& request, OnAnswer done);

  /// Ends an idle child, whose state is no longer wanted. The next request starts another.
  void restart(std::size_t worker);

 private:
  struct Worker;
  friend bool wait_for_answer(const std::vector<WorkerPool*>& pools, double limit_s);

  void answer(Worker& worker, WorkerAnswer answer);
  void start(Worker& worker);
  static int stop(Worker& worker);
  void read_from(Worker& worker);

  double limit_s_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

/// Waits until at least one request of these pools has ended, and calls what waits for it. False
/// after `limit_s` seconds, or at once if no worker is busy.
bool wait_for_answer(const std::vector<WorkerPool*>& pools, double limit_s);

/// Sends a request and waits for the answer.
[[nodiscard]] WorkerAnswer ask(WorkerPool& pool, std::size_t worker, const std::string& request);

}  // namespace sluice::profiler
