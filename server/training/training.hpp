#pragma once
#include <atomic>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "base/metrics_text.hpp"
#include "server/service/service.hpp"
#include "server/training/control.hpp"
#include "server/training/guard.hpp"
#include "server/training/process.hpp"
#include "server/training/train_store.hpp"
#include "server/training/trainer.hpp"
#include "server/training/trainer_slot.hpp"
#include "server/training/turn.hpp"

namespace sluice::server::training {

struct TrainingOptions {
  Mode mode = Mode::kColocateL1;
  std::string store;   ///< Folder of the jobs; empty: there are none.
  std::string python;  ///< See TrainStore.
  Command wrapper;     ///< Comes before each job's command: `sluice exec ... --`, or nothing.
  std::vector<std::string> environment;  ///< NAME=VALUE, for the jobs.
  std::filesystem::path guard;           ///< See Guard.
  std::string session;                   ///< Of the board; empty: there is none.
  double wedged_s = 10;  ///< A trainer that has not obeyed an order for so long is ended.
  /// From SIGTERM to SIGKILL; and from there until stop() no longer waits for the process.
  double stop_s = 5;
};

/// What happens, for the log and the profile. Called from the training thread.
struct TrainingEvents {
  std::function<void(const std::string&)> log;
  std::function<void(const Handover&)> handover;
  /// Inference may run now, after a Turn::take() that returned false.
  std::function<void()> inference_may_run;
};

/// The training of a server: jobs that run one after another, each a process that the mode
/// launches, interrupts and resumes. Thread-safe.
class Training : public Trainer, public Turn {
 public:
  /// Throws base::UsageError if there is no such store.
  Training(TrainingOptions options, TrainingEvents events);
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;
  /// stop()
  ~Training() override;

  /// Queues a job. `done` is called once, from any thread.
  void train(const TrainRequest& request, TrainDone done);
  /// Ends the jobs with this name and this id. Empty: any name, any id. kNotFound if there is none.
  [[nodiscard]] Status stop_job(const std::string& job, const std::string& id = "");
  /// Ends all jobs, and takes no new ones. Returns when there is no process any more, but one that
  /// does not end although it was killed.
  void stop();

  [[nodiscard]] Mode mode() const { return options_.mode; }
  [[nodiscard]] nlohmann::json status() const;
  void write_metrics(base::MetricsText& out) const;
  /// What this process, its trainer and all clients of the device hold.
  [[nodiscard]] MemoryUse memory_use() const;

  // Turn
  bool take() override;
  void give_back() override;

  // Trainer
  TrainerMemory memory() const override;
  bool may_shrink(shm::MemoryOrder& by) const override;
  void set_grant(std::uint64_t bytes) override;
  std::uint64_t order(shm::MemoryOrder kind) override;
  bool wait_done(std::uint64_t epoch, std::uint64_t until_ns) override;
  shm::ObeyParts parts() const override;
  void let_run() override;
  void resume() override;
  void end(const char* why) override;

 private:
  struct Job {
    std::string name;
    std::string id;
    Command command;
    TrainDone done;
    std::optional<Status> ended_by_us;             ///< The answer, once we have decided to end it.
    std::uint64_t kill_at_ns = ~std::uint64_t{0};  ///< SIGKILL follows SIGTERM.
    std::uint64_t abandon_at_ns = ~std::uint64_t{0};
  };
  /// Calls that must be made without the lock.
  using Calls = std::vector<std::function<void()>>;

  void loop();
  void wait();
  void step(Calls& calls);
  void poke() const;
  void act(Action action);
  void launch(Calls& calls);
  void look_for_end(Calls& calls);
  void look_for_done(Calls& calls);
  void look_for_stuck(Calls& calls);
  void process_ended(int wait_status, Calls& calls);
  void finish_stopped(Calls& calls);
  void finish_job(const Status& status, Calls& calls);
  void answer_job(const Job& job, const Status& status, Calls& calls);
  void end_current(Status answer, int signal);
  void say(Calls& calls, std::string line) const;

  const TrainingOptions options_;
  const TrainingEvents events_;
  std::optional<TrainStore> store_;

  mutable std::mutex mutex_;  ///< Guards all below but wake_ and thread_.
  Control control_;
  mutable TrainerSlot slot_;
  std::deque<Job> jobs_;  ///< The first one is current.
  std::optional<Guard> guard_;
  std::optional<Process> process_;
  bool launch_due_ = false;
  std::uint64_t launched_ns_ = 0;
  std::uint64_t launch_from_ns_ = 0;  ///< Not earlier, although it is due.
  bool stopped_ = false;
  std::uint64_t epoch_ = 0;        ///< Of the mode's order that is not obeyed yet; 0: none.
  std::uint64_t held_before_ = 0;  ///< When that order was given.
  std::uint64_t ordered_ns_ = 0;
  bool inference_waits_ = false;  ///< Since take() returned false.
  std::uint64_t launches_ = 0, orders_ = 0, kills_ = 0, finished_ = 0, failed_ = 0;

  base::Fd wake_;  ///< eventfd: something for the thread to look at.
  std::thread thread_;
  std::once_flag joined_;
};

}  // namespace sluice::server::training
