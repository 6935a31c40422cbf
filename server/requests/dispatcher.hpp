#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "scheduler/queue.hpp"
#include "server/memory/residency.hpp"
#include "server/requests/announcer.hpp"
#include "server/requests/execution.hpp"
#include "server/requests/host.hpp"
#include "server/service/byte_budget.hpp"
#include "server/training/turn.hpp"

namespace sluice::server {

struct DispatcherOptions {
  scheduler::Policy policy = scheduler::Policy::kEdf;
  /// A request is refused if its estimated completion is later than this many times the time to its
  /// deadline; 0: never.
  double admit_factor = 1;
  /// Whether requests run although their deadline has passed. Else they are dropped.
  bool run_late = false;
  /// Called in a round with the log line of each batch that succeeded; may be empty.
  std::function<void(const std::string&)> batch_line;
};

/// Orders the requests, forms batches and runs them step by step, in the rounds of its host; other
/// threads only leave messages.
class Dispatcher {
 public:
  /// `answer` is called in a round, once for each request; `lost` when the device has become
  /// unusable.
  using Answer = std::function<void(const Execution&, Pending&, const Status&, const Response&)>;
  using Lost = std::function<void(const std::string& why)>;
  /// The device, and with whom it is shared. Null where that is nobody.
  struct Sharing {
    int gpu = kNoGpu;                        ///< Its index.
    Turn* turn = nullptr;                    ///< Else inference always has the device.
    memory::Residency* residency = nullptr;  ///< Else no model's weights leave the device.
    /// Takes a request that another device may have: one of Pending::elsewhere. Called in a round.
    std::function<void(Pending)> hand_on = nullptr;
  };
  Dispatcher(const DispatcherOptions& options, Announcer& announcer, const ByteBudget& memory,
             Answer answer, Lost lost, Sharing sharing, std::unique_ptr<Host> host = threads());
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;
  /// stop(), and answers what is left as unavailable.
  ~Dispatcher();
  /// From now on nothing runs, and no request goes elsewhere.
  void stop();

  void submit(std::shared_ptr<Model> model, Pending pending);
  /// As submit(), but runs no round: for the round of another dispatcher.
  void hand_over(std::shared_ptr<Model> model, Pending pending);
  /// Estimated ns until all that has been submitted is done.
  [[nodiscard]] std::uint64_t ahead_ns() const;
  /// How long a critical request waits for training to leave, as it seems.
  [[nodiscard]] std::uint64_t turn_wait_ns() const;
  /// Whether a step of the model has failed a short while ago.
  [[nodiscard]] bool fails(const Model& model) const;
  /// How long steps have run in all.
  [[nodiscard]] std::uint64_t busy_ns() const { return busy_ns_; }
  void cancel(std::uint64_t request);
  /// The weights of a model are in, or will not be, because of `error`: ResidencyEvents::settled.
  void weights_settled(std::uint32_t model, const std::string& error);
  /// Looks again whether something can run, for example because the turn has come.
  void wake();
  /// Returns when the policy holds.
  void set_policy(scheduler::Policy policy);
  void add_model(const std::shared_ptr<Model>& model);
  /// Returns when the model's requests are answered: those that have not begun as unavailable.
  void remove_model(const std::shared_ptr<Model>& model);
  /// Returns when the model's requests are answered, those that wait too. The caller has the only
  /// reference to the model but those of requests.
  void retire_model(const std::shared_ptr<Model>& model);
  /// Answers all requests that wait, and those that run at the end of their step.
  void fail_all(const Status& status);
  /// Returns true when nothing is left, or false at `until_ns`.
  bool drain(std::uint64_t until_ns);

 private:
  using Message = std::function<void()>;
  using Executions = std::map<std::uint64_t, std::unique_ptr<Execution>>;

  void leave(Message message);
  void post(Message message);
  /// As post(), and may run a round: where the caller holds no lock that a round takes.
  void post_here(Message message);
  /// Returns when a round has run it.
  void post_and_wait(const Message& message);
  bool run_messages();
  [[nodiscard]] std::uint64_t round();
  [[nodiscard]] std::uint64_t next_wake_ns() const;
  [[nodiscard]] std::uint64_t done_at_ns(std::uint64_t now) const;
  [[nodiscard]] Message acceptance(std::shared_ptr<Model> model, Pending pending);
  void accept(std::shared_ptr<Model> model, Pending pending);
  [[nodiscard]] Execution* open_batch(const Model& model, const Pending& pending);
  [[nodiscard]] Execution* first_behind(const Model& model, const Pending& pending);
  [[nodiscard]] Status admit(const Model& model, const Pending& pending, const Execution* joins,
                             std::uint64_t now) const;
  [[nodiscard]] Status admit_ahead_of(const Execution& behind, const Pending& pending,
                                      std::uint64_t now) const;
  [[nodiscard]] Status admit(const scheduler::Task& task, std::uint64_t deadline,
                             std::uint64_t now) const;
  void append(const std::shared_ptr<Model>& model, Pending pending, std::uint64_t now);
  void begin_batch(std::shared_ptr<Model> model, Pending pending, std::uint64_t now);
  void join(Execution& execution, Pending pending, std::uint64_t now);
  void overtake(Execution& first, Pending pending, std::uint64_t now);
  void refilled(Execution& execution, std::uint64_t now);
  [[nodiscard]] scheduler::Task task_of(const Execution& execution) const;
  void find_weights(Execution& execution);
  void give_up_weights(const Execution& execution);
  void weights_are_in(std::uint32_t model);
  void weights_will_not_come(std::uint32_t model, const std::string& error);
  void release_held(std::uint64_t now);
  void drop_overdue(std::uint64_t now);
  void drop(Execution& execution, const std::function<bool(const Pending&)>& which,
            const Status& status);
  void drop_executions(const std::function<bool(const Execution&)>& which, const Status& status);
  void remove_if_unwanted(std::uint64_t task);
  void answer_dropped(Execution& execution);
  void hold(Execution& execution, std::uint64_t now);
  [[nodiscard]] bool has_critical() const;
  [[nodiscard]] bool may_run();
  void dispatch();
  void start(const scheduler::Step& step);
  void step_ended(const StepResult& result);
  void finish(Execution& execution, Status status);
  void answer(const Execution& execution, Pending& pending, const Status& status,
              const Response& response);
  [[nodiscard]] bool move_on(Pending& pending, const Status& status);
  void note_idle();

  double admit_factor_;
  bool run_late_;
  std::function<void(const std::string&)> batch_line_;
  Announcer& announcer_;
  const ByteBudget& memory_;
  Answer answer_;
  Lost lost_;
  const int gpu_;
  Turn* const turn_;
  memory::Residency* const residency_;
  const std::function<void(Pending)> hand_on_;

  std::mutex mutex_;  ///< Guards messages_.
  std::vector<Message> messages_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> done_at_ns_{0};  ///< Of the last round.
  std::atomic<std::uint64_t> unread_ns_{0};   ///< The time of requests in messages_.
  std::atomic<std::uint64_t> busy_ns_{0};
  std::atomic<bool> turn_taken_{false};
  std::atomic<std::uint64_t> turn_wait_ns_{0};  ///< The last time.

  // Used in rounds only.
  scheduler::Queue queue_;
  Executions executions_;  ///< By task.
  std::uint64_t next_task_ = 1;
  bool busy_ = false;        ///< A busy period has begun.
  bool turn_asked_ = false;  ///< take() has been called, and give_back() is due.
  std::uint64_t turn_asked_ns_ = 0;
  std::uint64_t turn_taken_ns_ = 0;  ///< 0: without waiting.
  std::uint64_t read_ns_ = 0;        ///< The part of unread_ns_ that this round has read.

  std::unique_ptr<Host> host_;
};

}  // namespace sluice::server
