#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "scheduler/edf.hpp"
#include "scheduler/policy.hpp"
#include "scheduler/task.hpp"

namespace sluice::scheduler {

/// The tasks of a server, and which one runs next. Not thread-safe. Times (`now`) must not
/// decrease.
class Queue {
 public:
  explicit Queue(Policy policy) : policy_(policy) {}

  [[nodiscard]] Policy policy() const { return policy_; }
  /// Reorders the waiting tasks. Running steps end normally, and tasks that have begun in blocks
  /// continue in blocks.
  void set_policy(Policy policy, std::uint64_t now);

  /// A model that is served. DLIR asks whether such a model has no task; PARALLER runs up to
  /// `instances` tasks of the model at once. A second call changes the number of instances.
  void add_model(std::uint32_t model, std::size_t instances = 1);
  /// Tasks of the model that are still queued run as before.
  void remove_model(std::uint32_t model);

  /// `task.id` must be new and `task.next_block` 0.
  void insert(Task task, std::uint64_t now);
  /// False if there is no such task or one of its steps is running.
  bool remove(std::uint64_t id);
  /// Replaces the deadline and the durations of a task that has not begun (its batch has grown).
  /// The task keeps its place under the published policies. False if there is no such task or it
  /// has begun.
  bool update(const Task& task);

  /// Begins the next step. Nothing if no task waits or the GPU is taken: by any running step, or,
  /// under PARALLER, by as many running steps of each waiting model as the model has instances.
  std::optional<Step> begin(std::uint64_t now);
  /// The running step of this task has ended. A task without further blocks leaves the queue.
  void end(std::uint64_t id, std::uint64_t now);

  /// Estimated ns from `now` to the end of `task` if no other task came: if it was inserted now,
  /// or, if a task of that id waits, in place of that task. Under PARALLER, an upper bound: all
  /// that is queued.
  [[nodiscard]] std::uint64_t completion_ns(const Task& task, std::uint64_t now) const;

  [[nodiscard]] std::size_t size() const { return entries_.size(); }  ///< Waiting and running.
  [[nodiscard]] bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    Task task;  ///< task.next_block counts the blocks of the running step as begun.
    std::uint64_t sequence = 0;
    std::optional<Step> running;
    std::uint64_t begun_ns = 0;  ///< Begin of the running step.
  };

  [[nodiscard]] std::uint64_t left_ns(const Task& task) const;
  [[nodiscard]] std::uint64_t running_left_ns(std::uint64_t now) const;
  [[nodiscard]] std::size_t not_begun(std::uint32_t model) const;
  [[nodiscard]] std::size_t place(const std::vector<Entry>& entries, const Task& task) const;
  [[nodiscard]] edf::Waiting waiting(const Task& task) const;
  [[nodiscard]] std::vector<edf::Waiting> waiting() const;
  [[nodiscard]] std::optional<std::size_t> next_index(std::uint64_t now) const;
  [[nodiscard]] std::optional<std::size_t> next_parallel() const;
  [[nodiscard]] bool splits(std::size_t index, std::uint64_t now) const;
  [[nodiscard]] bool splits_elastically(const Task& task) const;
  [[nodiscard]] bool splits_for_newcomers(std::size_t index, std::uint64_t now) const;
  [[nodiscard]] std::uint64_t exposed_ns(const std::vector<std::uint64_t>& step_ns,
                                         std::uint32_t model) const;

  Policy policy_;
  std::uint64_t inserted_ = 0;
  std::uint64_t busy_since_ns_ = 0;  ///< Since when the queue has not been empty.
  std::map<std::uint32_t, std::size_t> instances_;
  /// How long the latest request of each model could wait.
  std::map<std::uint32_t, std::uint64_t> slack_ns_;
  /// FIFO, PARALLER, EDF: in the order of insertion. Greedy policies: the next task first.
  std::vector<Entry> entries_;
};

}  // namespace sluice::scheduler
