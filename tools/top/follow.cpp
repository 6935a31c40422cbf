#include "tools/top/follow.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/json_text.hpp"
#include "base/signal_fd.hpp"
#include "shm/mapping.hpp"
#include "tools/status/look.hpp"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

/// The last of these durations, of `ended` in all, that are not among the first `reported` ones.
struct News {
  News(const std::vector<std::uint64_t>& recent, std::uint64_t ended, std::uint64_t reported) {
    const std::uint64_t more = std::max(ended, reported) - reported;
    const std::uint64_t known = std::min<std::uint64_t>(more, recent.size());
    ns = {recent.end() - static_cast<std::ptrdiff_t>(known), recent.end()};
    missed = more - known;
  }
  std::vector<std::uint64_t> ns;
  std::uint64_t missed;
};

/// Reports what ended after `reported`.
Json client_json(const shm::ClientSnapshot& client, const std::string& state,
                 const JobFollower::Ended& reported) {
  News jobs(client.recent_jobs_ns, client.jobs_ended, reported.jobs);
  News steps(client.steps.recent_ns, client.steps.seen, reported.steps);
  return {{"pid", client.pid},
          {"name", client.name},
          {"slot", client.slot},
          {"generation", client.generation},
          {"device", client.device},
          {"priority", client.priority},
          {"policy", client.policy},
          {"state", state},
          {"launches", client.launches},
          {"waits", client.waits},
          {"held_ns", client.held_total_ns},
          {"jobs", client.jobs_ended},
          {"job_ns", std::move(jobs.ns)},
          {"missed", jobs.missed},
          {"steps", client.steps.seen},
          {"step_ns", std::move(steps.ns)},
          {"missed_steps", steps.missed}};
}

/// Reads the last jobs and steps of a client that has given its slot back: the slot keeps them
/// until the next client has it. False if the next client has it already.
bool read_last(const shm::Board& board, shm::ClientSnapshot& client) {
  const shm::Slot& slot = board.slots[static_cast<std::size_t>(client.slot)];
  const auto info = shm::SlotInfo::unpack(slot.info.load());
  if (info.state != shm::SlotState::kFree || info.generation != client.generation + 1) return false;
  shm::JobTimes::Recent recent = slot.job_times.recent();
  client.jobs_ended = recent.ended;
  client.recent_jobs_ns = std::move(recent.ns);
  recent = slot.steps.last.recent(slot.steps.seen);
  client.steps.seen = recent.ended;
  client.steps.recent_ns = std::move(recent.ns);
  return slot.info.load() == info.pack();
}

Json head(const std::string& session, std::uint64_t now_ns) {
  return {{"t_ns", now_ns}, {"session", session}};
}

std::string text_of(const Json& json) {
  // A name may contain any bytes.
  return base::json_text(json) + "\n";
}

/// Reads the lines. Throws shm::BoardError if the board is unreadable for kUnreadableNs.
class LineReader {
 public:
  explicit LineReader(const std::string& session) : session_(session), follower_(session) {}

  std::string next() {
    const std::uint64_t now_ns = base::monotonic_ns();
    try {
      const auto mapping = shm::BoardMapping::inspect(session_);
      shm::Snapshot now = shm::take_snapshot(mapping.board(), now_ns);
      readable_ns_ = now_ns;
      if (somebody_is_left(now, process_exists)) return follower_.line(mapping.board(), now);
    } catch (const shm::NoBoard&) {
      // Wait for the session, as after the end of all its processes.
      readable_ns_ = now_ns;
    } catch (const shm::BoardError&) {
      // A controller may be making the board and not have filled it yet.
      if (now_ns - readable_ns_ > kUnreadableNs) throw;
    }
    return follower_.line_without_board(now_ns);
  }

 private:
  static constexpr std::uint64_t kUnreadableNs = 2'000'000'000;
  std::string session_;
  JobFollower follower_;
  std::uint64_t readable_ns_ = base::monotonic_ns();
};

/// False if the reader is gone.
bool print_line(std::string_view line) {
  while (!line.empty()) {
    const ssize_t written = write(STDOUT_FILENO, line.data(), line.size());
    if (written < 0 && errno != EINTR) return false;
    line.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
  return true;
}

/// False if a signal came or the reader is gone.
bool wait_until(std::chrono::steady_clock::time_point deadline, const base::SignalFd& signals) {
  // POLLERR comes without being asked for: nobody reads standard output any more.
  std::array<pollfd, 2> ends{{{signals.fd(), POLLIN, 0}, {STDOUT_FILENO, 0, 0}}};
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const int count =
        poll(ends.data(), ends.size(), static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (count == 0) return true;
    if (count > 0 || errno != EINTR) return false;
  }
}

}  // namespace

std::string JobFollower::line(const shm::Board& board, const shm::Snapshot& now) {
  const bool first = !board_id_;
  if (board_id_ != now.board_id) followed_.clear();
  board_id_ = now.board_id;
  Json json = head(session_, now.taken_ns);
  json["controller"] = {{"pid", now.controller_pid}, {"alive", now.controller_lives}};
  json["clients"] = Json::array();
  std::map<int, Followed> living;
  for (const shm::ClientSnapshot& client : now.clients) {
    const auto known = followed_.find(client.slot);
    const bool goes_on = known != followed_.end() && shm::same_client(known->second.last, client);
    const Ended ended{client.jobs_ended, client.steps.seen};
    const Ended reported = goes_on ? known->second.reported : first ? ended : Ended{};
    json["clients"].push_back(client_json(client, shm::state_name(client), reported));
    living[client.slot] = {
        client, {std::max(ended.jobs, reported.jobs), std::max(ended.steps, reported.steps)}};
    if (goes_on) followed_.erase(known);
  }
  for (auto& [slot, gone] : followed_) {
    if (read_last(board, gone.last)) {
      json["clients"].push_back(client_json(gone.last, "gone", gone.reported));
    }
  }
  followed_ = std::move(living);
  return text_of(json);
}

std::string JobFollower::line_without_board(std::uint64_t now_ns) {
  board_id_ = 0;
  followed_.clear();
  Json json = head(session_, now_ns);
  json["controller"] = nullptr;
  json["clients"] = Json::array();
  return text_of(json);
}

void follow_session(const std::string& session, double interval_s) {
  using Clock = std::chrono::steady_clock;
  const base::SignalFd signals{SIGINT, SIGTERM, SIGHUP};
  signal(SIGPIPE, SIG_IGN);
  const auto interval =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(interval_s));
  LineReader reader(session);
  for (auto deadline = Clock::now() + interval;; deadline += interval) {
    if (!print_line(reader.next()) || !wait_until(deadline, signals)) return;
    if (deadline + interval < Clock::now()) deadline = Clock::now();  // the process was stopped
  }
}

}  // namespace sluice::tools
