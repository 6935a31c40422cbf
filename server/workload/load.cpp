#include "server/workload/load.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <queue>
#include <unordered_map>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace sluice::server::workload {
namespace {

constexpr double kNsPerS = 1e9;
constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::uint64_t kProgressNs = 5'000'000'000;
/// A closed loop that gets an error at once would otherwise spin.
constexpr std::uint64_t kAfterErrorNs = 10'000'000;

/// All times in ns after the start.
struct Timer {
  enum class Kind {
    kArrival,  ///< An open loop: a request begins, with its headers or as a whole.
    kNext,     ///< A closed loop: the next request of one of those outstanding.
    kChange,   ///< A closed loop: the number of outstanding requests changes.
    kBody,     ///< The body of a request that has begun with its headers.
  };
  std::uint64_t at_ns;
  Kind kind;
  std::uint32_t worker;
  std::uint64_t id;  ///< kBody: the request; kArrival: its due time.

  bool operator>(const Timer& other) const { return at_ns > other.at_ns; }
};

struct InFlight {
  Record record;
  std::shared_ptr<Call> call;
};

struct State {
  const Worker* worker;
  std::size_t request;
  DueTimes due;  ///< Of an open loop.
  std::size_t outstanding = 0;
  std::size_t loops = 0;  ///< Of a closed loop: outstanding or about to be.
};

class Load {
 public:
  Load(Client& client, const std::vector<Worker>& workers, const std::vector<std::size_t>& requests,
       const LoadOptions& options, const LoadEvents& events)
      : client_(client), options_(options), events_(events) {
    for (std::size_t i = 0; i < workers.size(); ++i) {
      State state{&workers[i], requests[i], {}};
      if (closed(state) == nullptr) {
        state.due = due_times(workers[i].law, static_cast<std::uint32_t>(i), options.seed);
      }
      states_.push_back(std::move(state));
    }
    result_.messages.resize(workers.size());
    if (options.duration_s) end_ns_ = static_cast<std::uint64_t>(*options.duration_s * kNsPerS);
  }

  LoadResult run(int interrupt_fd) {
    // Timers of this thread are late by 50 us otherwise.
    prctl(PR_SET_TIMERSLACK, 1UL);
    start_ns_ = base::monotonic_ns();
    {
      const std::lock_guard lock(mutex_);
      for (std::uint32_t i = 0; i < states_.size(); ++i) begin(i);
    }
    std::uint64_t progress_ns = kProgressNs;
    while (const auto wake_ns = step()) {
      wait(std::min(*wake_ns, progress_ns), interrupt_fd);
      if (now() >= progress_ns) {
        progress_ns += kProgressNs;
        events_.progress(progress());
      }
    }
    return std::move(result_);
  }

 private:
  static const ClosedLoop* closed(const State& state) {
    return std::get_if<ClosedLoop>(&state.worker->law);
  }
  [[nodiscard]] std::uint64_t now() const { return base::monotonic_ns() - start_ns_; }

  void begin(std::uint32_t worker) {
    const ClosedLoop* loop = closed(states_[worker]);
    if (loop == nullptr) return schedule_arrival(worker);
    for (const double change_s : loop->outstanding.change_s) {
      // One ns more, so that rounding does not make it a time before the change.
      const auto at_ns = static_cast<std::uint64_t>(change_s * kNsPerS) + 1;
      add({at_ns, Timer::Kind::kChange, worker, 0});
    }
    fill(worker);
  }

  /// Starts as many closed loops as there are to be now.
  void fill(std::uint32_t worker) {
    State& state = states_[worker];
    while (!over_ && state.loops < wanted(state)) {
      ++state.loops;
      // The time may end while so many are started.
      if (!begin_next(worker)) return;
    }
  }

  [[nodiscard]] std::size_t wanted(const State& state) const {
    return closed(state)->outstanding.at(static_cast<double>(now()) / kNsPerS);
  }

  /// Sends the next request of a closed loop. False: the loop has ended.
  bool begin_next(std::uint32_t worker) {
    const std::uint64_t due_ns = now() + options_.announce_ns.value_or(0);
    if (over_ || due_ns >= end_ns_) {
      --states_[worker].loops;
      return false;
    }
    start(worker, due_ns);
    return true;
  }

  void schedule_arrival(std::uint32_t worker) {
    const auto due_ns = states_[worker].due();
    if (!due_ns || *due_ns >= end_ns_) return;
    const std::uint64_t notice_ns = std::min(options_.announce_ns.value_or(0), *due_ns);
    add({*due_ns - notice_ns, Timer::Kind::kArrival, worker, *due_ns});
  }

  void arrive(std::uint32_t worker, std::uint64_t due_ns) {
    if (states_[worker].outstanding < options_.max_outstanding) {
      start(worker, due_ns);
    } else {
      Record record;
      record.worker = worker;
      record.sent = false;
      record.due_ns = due_ns;
      result_.records.push_back(record);
      count_started();
    }
    if (!over_) schedule_arrival(worker);
  }

  void start(std::uint32_t worker, std::uint64_t due_ns) {
    using Begin = Client::Begin;
    State& state = states_[worker];
    const std::uint64_t id = next_id_++;
    const bool held = options_.announce_ns && due_ns > now();
    const Begin whole = options_.announce_ns ? Begin::kNamed : Begin::kWhole;
    InFlight& flight = in_flight_[id];
    flight.record.worker = worker;
    flight.record.due_ns = due_ns;
    flight.record.sent_ns = now();
    ++state.outstanding;
    // Nobody can answer before this function returns, because it holds the mutex.
    flight.call =
        client_.start(state.request, held ? Begin::kHeaders : whole,
                      [this, worker, id](const Answer& answer) { answered(worker, id, answer); });
    if (held) add({due_ns, Timer::Kind::kBody, worker, id});
    count_started();
  }

  void send_body(std::uint64_t id) {
    const auto found = in_flight_.find(id);
    // The server may have answered the headers alone.
    if (found == in_flight_.end()) return;
    found->second.record.sent_ns = now();
    found->second.call->send_body();
  }

  void count_started() {
    if (++started_ == options_.count) stop_sending(Ended::kDone);
  }

  void stop_sending(Ended ended) {
    if (std::exchange(over_, true)) return;
    result_.ended = ended;
    const std::uint64_t last_ns = ended == Ended::kTime ? end_ns_ : now();
    result_.sending_s = static_cast<double>(last_ns) / kNsPerS;
    cancel_ns_ = ended == Ended::kInterrupted
                     ? now()
                     : last_ns + options_.announce_ns.value_or(0) +
                           static_cast<std::uint64_t>(options_.drain_s * kNsPerS);
    wake();
  }

  void answered(std::uint32_t worker, std::uint64_t id, const Answer& answer) {
    if (events_.answer) events_.answer(*states_[worker].worker, id, answer);
    // The end of the run waits for the mutex, so nothing of this object may be used behind it.
    const std::lock_guard lock(mutex_);
    const auto found = in_flight_.find(id);
    Record record = found->second.record;
    in_flight_.erase(found);
    if (!cancelled_ || answer.code == Code::kOk) record.code = answer.code;
    record.end_ns = answer.end_ns - start_ns_;
    result_.records.push_back(record);
    (answer.code == Code::kOk ? progress_.answered : progress_.errors)++;
    if (record.code && !answer.message.empty()) {
      result_.messages[worker].try_emplace(answer.code, answer.message);
    }
    --states_[worker].outstanding;
    if (closed(states_[worker]) != nullptr) go_on(worker, answer.code);
    if (in_flight_.empty()) wake();
  }

  /// A closed loop has an answer.
  void go_on(std::uint32_t worker, Code code) {
    State& state = states_[worker];
    if (over_ || state.loops > wanted(state)) {
      --state.loops;
      return;
    }
    auto pause_ns = static_cast<std::uint64_t>(closed(state)->interval_ms * 1e6);
    if (code != Code::kOk) pause_ns = std::max(pause_ns, kAfterErrorNs);
    if (pause_ns == 0) return static_cast<void>(begin_next(worker));
    add({now() + pause_ns, Timer::Kind::kNext, worker, 0});
  }

  /// Does what is due. Returns when to come again, or nothing at the end.
  std::optional<std::uint64_t> step() {
    const std::lock_guard lock(mutex_);
    while (!timers_.empty() && timers_.top().at_ns <= now()) {
      const Timer timer = timers_.top();
      timers_.pop();
      fire(timer);
    }
    if (now() >= end_ns_) stop_sending(Ended::kTime);
    if (interrupted_) stop_sending(Ended::kInterrupted);
    if (end_ns_ == kNever && timers_.empty() && !loops()) stop_sending(Ended::kDone);
    if (over_) {
      if (in_flight_.empty()) return std::nullopt;
      if (now() >= cancel_ns_) cancel_all();
    }
    armed_ns_ = over_ && !cancelled_ ? cancel_ns_ : end_ns_;
    if (cancelled_) armed_ns_ = kNever;
    if (!timers_.empty()) armed_ns_ = std::min(armed_ns_, timers_.top().at_ns);
    return armed_ns_;
  }

  /// Whether an answer leads to a further request.
  [[nodiscard]] bool loops() const {
    return std::any_of(states_.begin(), states_.end(),
                       [](const State& state) { return state.loops > 0; });
  }

  void fire(const Timer& timer) {
    if (timer.kind == Timer::Kind::kBody) return send_body(timer.id);
    if (over_) return;
    switch (timer.kind) {
      case Timer::Kind::kArrival:
        return arrive(timer.worker, timer.id);
      case Timer::Kind::kNext:
        return static_cast<void>(begin_next(timer.worker));
      case Timer::Kind::kChange:
        return fill(timer.worker);
      case Timer::Kind::kBody:
        break;
    }
  }

  void cancel_all() {
    if (std::exchange(cancelled_, true)) return;
    for (const auto& [id, flight] : in_flight_) flight.call->cancel();
  }

  void add(const Timer& timer) {
    timers_.push(timer);
    if (timer.at_ns < armed_ns_) wake();
  }

  void wake() const { eventfd_write(event_.get(), 1); }

  void wait(std::uint64_t until_ns, int interrupt_fd) {
    const std::uint64_t from_ns = now();
    const std::uint64_t left_ns = until_ns > from_ns ? until_ns - from_ns : 0;
    const timespec left{static_cast<time_t>(left_ns / 1'000'000'000),
                        static_cast<long>(left_ns % 1'000'000'000)};
    std::array<pollfd, 2> fds{{{event_.get(), POLLIN, 0}, {interrupt_fd, POLLIN, 0}}};
    if (interrupted_) fds[1].fd = -1;
    ppoll(fds.data(), fds.size(), &left, nullptr);
    eventfd_t ignored = 0;
    eventfd_read(event_.get(), &ignored);
    if ((fds[1].revents & POLLIN) != 0) interrupted_ = true;
  }

  [[nodiscard]] LoadProgress progress() {
    const std::lock_guard lock(mutex_);
    progress_.s = static_cast<double>(now()) / kNsPerS;
    progress_.outstanding = in_flight_.size();
    return progress_;
  }

  Client& client_;
  const LoadOptions options_;
  const LoadEvents& events_;
  std::uint64_t start_ns_ = 0;
  std::uint64_t end_ns_ = kNever;
  bool interrupted_ = false;  ///< Of the thread of run() only.
  base::Fd event_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  std::mutex mutex_;  ///< Protects all below, and start() against its own answer.
  std::vector<State> states_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::unordered_map<std::uint64_t, InFlight> in_flight_;
  std::uint64_t next_id_ = 0;
  std::uint64_t started_ = 0;
  std::uint64_t armed_ns_ = 0;  ///< When run() looks at the timers again.
  bool over_ = false;           ///< No request begins any more.
  bool cancelled_ = false;
  std::uint64_t cancel_ns_ = kNever;
  LoadProgress progress_;
  LoadResult result_;
};

}  // namespace

LoadResult run_load(Client& client, const std::vector<Worker>& workers,
                    const std::vector<std::size_t>& requests, const LoadOptions& options,
                    int interrupt_fd, const LoadEvents& events) {
  return Load(client, workers, requests, options, events).run(interrupt_fd);
}

}  // namespace sluice::server::workload
