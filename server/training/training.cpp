#include "server/training/training.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <utility>

#include "base/child.hpp"
#include "base/clock.hpp"

namespace sluice::server::training {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
/// Each job that waits holds a call of its client.
constexpr std::size_t kMostJobs = 64;
constexpr std::size_t kMostIdBytes = 128;
/// Between two launches of a program that somebody else has killed: one that the kernel kills for
/// its memory would otherwise be started as fast as possible.
constexpr std::uint64_t kLaunchGapNs = 1'000'000'000;

std::uint64_t ns(double seconds) { return static_cast<std::uint64_t>(seconds * 1e9); }

}  // namespace

Training::Training(TrainingOptions options, TrainingEvents events)
    : options_(std::move(options)),
      events_(std::move(events)),
      control_(options_.mode, ns(options_.wedged_s)),
      slot_(options_.session),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!options_.store.empty()) {
    store_.emplace(options_.store, options_.python);
    guard_.emplace(options_.guard);
  }
  thread_ = std::thread([this] { loop(); });
}

Training::~Training() { stop(); }

void Training::poke() const { eventfd_write(wake_.get(), 1); }

void Training::train(const TrainRequest& request, TrainDone done) {
  Status refused;
  Command command = options_.wrapper;
  if (!store_) {
    refused = {Code::kNotFound, fmt::format("unknown training job '{}': the server was started "
                                            "without --train-store",
                                            request.job.substr(0, 128))};
  } else if (request.id.size() > kMostIdBytes) {
    refused = {Code::kInvalidArgument,
               fmt::format("the id of a training job has at most {} bytes", kMostIdBytes)};
  } else {
    try {
      const Command own = store_->command(request.job, request.args, options_.mode);
      command.insert(command.end(), own.begin(), own.end());
    } catch (const base::UsageError& error) {
      refused = {Code::kInvalidArgument, error.what()};
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) refused = {Code::kUnavailable, "the server is shutting down"};
    if (refused.ok() && jobs_.size() == kMostJobs) {
      refused = {Code::kResourceExhausted, fmt::format("{} training jobs wait already", kMostJobs)};
    }
    if (refused.ok()) {
      jobs_.push_back({request.job, request.id, std::move(command), std::move(done), std::nullopt});
      if (jobs_.size() == 1) act(control_.job_submitted());
      return;
    }
  }
  done(refused);
}

/// Does what the control has decided. Under the lock.
void Training::act(Action action) {
  switch (action) {
    case Action::kNothing:
      return;
    case Action::kLaunch:
      launch_due_ = true;
      break;
    case Action::kSleep:
    case Action::kRestore:
      held_before_ = slot_.memory().held;
      ordered_ns_ = base::monotonic_ns();
      epoch_ = slot_.order(action == Action::kSleep ? shm::MemoryOrder::kSleep
                                                    : shm::MemoryOrder::kEpoch);
      ++orders_;
      break;
    case Action::kResume:
      slot_.resume();
      return;
    case Action::kKill:
      ordered_ns_ = base::monotonic_ns();
      if (process_) {
        held_before_ = slot_.memory().held;
        ++kills_;
        process_->signal(SIGKILL);
      } else {
        launch_due_ = false;
        act(control_.trainer_ended(TrainerEnd::kKilled));
      }
      break;
    case Action::kEnd:
      end_current({Code::kInternal,
                   fmt::format("the training job did not obey an order for {:g} s (--wedged-s) and "
                               "was killed",
                               options_.wedged_s)},
                  SIGKILL);
      break;
  }
  poke();
}

/// The current job will end with this answer, because we end it.
void Training::end_current(Status answer, int signal) {
  Job& job = jobs_.front();
  if (!job.ended_by_us) job.ended_by_us = std::move(answer);
  if (signal != SIGKILL) {
    job.kill_at_ns = std::min(job.kill_at_ns, base::monotonic_ns() + ns(options_.stop_s));
  }
  if (process_) process_->signal(signal);
  poke();
}

bool Training::take() {
  const std::lock_guard lock(mutex_);
  act(control_.inference_wants(base::monotonic_ns(), slot_.memory().obeys));
  inference_waits_ = !control_.inference_may_run();
  return !inference_waits_;
}

void Training::give_back() {
  const std::lock_guard lock(mutex_);
  inference_waits_ = false;
  act(control_.inference_idle());
}

void Training::loop() {
  while (true) {
    wait();
    Calls calls;
    bool over = false;
    {
      const std::lock_guard lock(mutex_);
      step(calls);
      over = stopped_ && jobs_.empty() && !process_;
    }
    for (const auto& call : calls) call();
    if (over) return;
  }
}

/// Waits for a poke, output of the trainer, or the time to look at the trainer again.
void Training::wait() {
  std::array<pollfd, 2> fds{pollfd{wake_.get(), POLLIN, 0}, pollfd{-1, POLLIN, 0}};
  timespec most{3600, 0};
  {
    const std::lock_guard lock(mutex_);
    constexpr long kLookAgainNs = 20'000'000;
    // Inference waits for the end of these, so each look costs more than its time.
    constexpr long kLookSoonNs = 100'000;
    if (process_) most = {0, control_.stopping() ? kLookSoonNs : kLookAgainNs};
    if (process_) fds[1].fd = process_->output_fd();
    if (launch_due_) most = {0, kLookAgainNs};
  }
  ppoll(fds.data(), fds.size(), &most, nullptr);
  eventfd_t ignored = 0;
  eventfd_read(wake_.get(), &ignored);
}

void Training::step(Calls& calls) {
  look_for_done(calls);
  if (slot_.memory().obeys) act(control_.trainer_knows_orders(base::monotonic_ns()));
  act(control_.time_passed(base::monotonic_ns()));
  if (process_ && base::monotonic_ns() >= jobs_.front().kill_at_ns) {
    jobs_.front().kill_at_ns = kNever;
    process_->signal(SIGKILL);
    jobs_.front().abandon_at_ns = base::monotonic_ns() + ns(options_.stop_s);
  }
  look_for_end(calls);
  if (stopped_) look_for_stuck(calls);
  finish_stopped(calls);
  if (launch_due_ && base::monotonic_ns() >= launch_from_ns_) launch(calls);
  if (inference_waits_ && control_.inference_may_run()) {
    inference_waits_ = false;
    calls.emplace_back(events_.inference_may_run);
  }
}

/// Answers the jobs that are stopped before their process has been started.
void Training::finish_stopped(Calls& calls) {
  while (!process_ && !jobs_.empty() && jobs_.front().ended_by_us) {
    control_.job_withdrawn();
    launch_due_ = false;
    finish_job(*jobs_.front().ended_by_us, calls);
  }
  for (std::size_t i = 1; i < jobs_.size();) {
    if (!jobs_[i].ended_by_us) {
      ++i;
      continue;
    }
    const Job job = std::move(jobs_[i]);
    jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(i));
    answer_job(job, *job.ended_by_us, calls);
  }
}

void Training::launch(Calls& calls) {
  launch_due_ = false;
  launched_ns_ = base::monotonic_ns();
  try {
    std::vector<std::string> environment = options_.environment;
    environment.emplace_back("PYTHONUNBUFFERED=1");  // lines come when they are printed
    environment.push_back(guard_->begin());
    process_.emplace(jobs_.front().command, environment);
    guard_->follow(process_->pid());
  } catch (const base::RunError& error) {
    jobs_.front().ended_by_us = Status{Code::kInternal, error.what()};
    poke();
    return;
  }
  slot_.follow(process_->pid());
  ++launches_;
  say(calls, fmt::format("training job {} started, pid {}", jobs_.front().name, process_->pid()));
}

void Training::look_for_done(Calls& calls) {
  if (epoch_ == 0 || !slot_.done(epoch_)) return;
  Handover handover;
  handover.at_ns = ordered_ns_;
  handover.obey = slot_.parts();
  const std::uint64_t held = slot_.memory().held;
  handover.bytes = held_before_ > held ? held_before_ - held : 0;
  epoch_ = 0;
  act(control_.trainer_obeyed());
  calls.emplace_back([this, handover] { events_.handover(handover); });
}

void Training::look_for_end(Calls& calls) {
  if (!process_) return;
  const auto log = [&](const std::string& line) { say(calls, "[PyTorch backend] Train: " + line); };
  process_->read_lines(log);
  const std::optional<int> status = process_->ended(log);
  if (status) process_ended(*status, calls);
}

/// The kernel cannot end a process that is stuck in a driver or in a file system.
void Training::look_for_stuck(Calls& calls) {
  if (!process_ || base::monotonic_ns() < jobs_.front().abandon_at_ns) return;
  say(calls, fmt::format("training job {}: pid {} was killed and does not end; the server ends "
                         "without it",
                         jobs_.front().name, process_->pid()));
  process_->abandon();
  process_ended(SIGKILL, calls);
}

void Training::process_ended(int wait_status, Calls& calls) {
  process_.reset();
  guard_->end();
  slot_.follow(0);
  epoch_ = 0;
  Job& job = jobs_.front();
  const bool killed = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL;
  if (killed && control_.stopping()) {
    Handover handover;
    handover.at_ns = ordered_ns_;
    handover.obey.drop_ns = base::monotonic_ns() - ordered_ns_;
    handover.bytes = held_before_;
    calls.emplace_back([this, handover] { events_.handover(handover); });
  }
  const bool again = killed && !job.ended_by_us;
  launch_from_ns_ = again && !control_.stopping() ? launched_ns_ + kLaunchGapNs : 0;
  act(control_.trainer_ended(again ? TrainerEnd::kKilled : TrainerEnd::kFinished));
  if (again) {
    say(calls, fmt::format("training job {} was killed; it starts again", job.name));
    return;
  }
  const int code = base::exit_code(wait_status);
  Status answer;
  if (job.ended_by_us) {
    answer = *job.ended_by_us;
  } else if (code != 0) {
    answer = {Code::kInternal,
              fmt::format("training job '{}' {}", job.name, base::describe_end(wait_status))};
  }
  finish_job(answer, calls);
}

/// The current job has its answer; the next one begins.
void Training::finish_job(const Status& status, Calls& calls) {
  const Job job = std::move(jobs_.front());
  jobs_.pop_front();
  answer_job(job, status, calls);
  if (!jobs_.empty()) act(control_.job_submitted());
}

void Training::answer_job(const Job& job, const Status& status, Calls& calls) {
  ++(status.ok() ? finished_ : failed_);
  say(calls,
      fmt::format("training job {}: {}", job.name, status.ok() ? "train ok" : status.message));
  calls.emplace_back([done = job.done, status] { done(status); });
}

void Training::say(Calls& calls, std::string line) const {
  calls.emplace_back([this, line = std::move(line)] { events_.log(line); });
}

Status Training::stop_job(const std::string& name, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const Status answer{Code::kCancelled, "the training job was stopped"};
  bool found = false;
  for (Job& job : jobs_) {
    if (!name.empty() && job.name != name) continue;
    if (!id.empty() && job.id != id) continue;
    found = true;
    if (&job == &jobs_.front()) {
      end_current(answer, SIGTERM);
    } else {
      job.ended_by_us = answer;
    }
  }
  if (found) poke();
  if (found || (name.empty() && id.empty())) return {};
  return {Code::kNotFound, fmt::format("no training job '{}'{} runs or waits", name.substr(0, 128),
                                       id.empty() ? "" : " with this id")};
}

void Training::stop() {
  std::unique_lock lock(mutex_);
  stopped_ = true;
  const Status answer{Code::kUnavailable, "the server is shutting down"};
  for (Job& job : jobs_) {
    if (!job.ended_by_us) job.ended_by_us = answer;
  }
  if (!jobs_.empty()) end_current(answer, SIGTERM);
  poke();
  lock.unlock();
  // The thread ends when there is no job, and no process that can be waited for. Afterwards no
  // event is called.
  std::call_once(joined_, [this] { thread_.join(); });
}

}  // namespace sluice::server::training
