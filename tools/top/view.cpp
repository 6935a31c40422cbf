#include "tools/top/view.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/statistics.hpp"

namespace sluice::tools {
namespace {

const shm::ClientSnapshot* find_earlier(const shm::Snapshot& before,
                                        const shm::ClientSnapshot& client) {
  const auto found = std::find_if(
      before.clients.begin(), before.clients.end(),
      [&](const shm::ClientSnapshot& earlier) { return shm::same_client(earlier, client); });
  return found == before.clients.end() ? nullptr : &*found;
}

/// Counters are read one by one while their owner writes, so a difference may be negative.
double per_second(std::uint64_t now, std::uint64_t then, double seconds) {
  return now > then && seconds > 0 ? static_cast<double>(now - then) / seconds : 0.0;
}

ClientRates rates_of(const shm::ClientSnapshot& client, const shm::ClientSnapshot* earlier,
                     double span_s) {
  ClientRates rates;
  const double since_attach_s = static_cast<double>(client.attached_ns) / 1e9;
  const double seconds = earlier != nullptr ? span_s : since_attach_s;
  rates.launches_per_s =
      per_second(client.launches, earlier != nullptr ? earlier->launches : 0, seconds);
  const bool steps = of_steps(client);
  const auto ended = [steps](const shm::ClientSnapshot& of) {
    return steps ? of.steps.seen : of.jobs_ended;
  };
  rates.jobs_per_s = per_second(ended(client), earlier != nullptr ? ended(*earlier) : 0, seconds);
  // When a held client gets work, its hold counts from the begin at once: the share may exceed 1.
  const double held_s =
      per_second(client.held_total_ns, earlier != nullptr ? earlier->held_total_ns : 0, seconds) /
      1e9;
  rates.held_share = std::min(held_s, 1.0);
  rates.gpu_share =
      per_second(client.gpu_ns, earlier != nullptr ? earlier->gpu_ns : 0, seconds) / 1e9;
  const auto& jobs = recent_ns(client);
  rates.jobs = jobs.size();
  if (rates.jobs == 0) return rates;
  const std::vector<double> sample(jobs.begin(), jobs.end());
  rates.p50_ns = static_cast<std::uint64_t>(std::llround(base::percentile(sample, 0.5)));
  rates.max_ns = *std::max_element(jobs.begin(), jobs.end());
  return rates;
}

constexpr std::array<std::string_view, 5> kSortNames{"priority", "name", "held", "launches", "max"};

bool matches(const shm::ClientSnapshot& client, const std::string& filter) {
  return client.name.find(filter) != std::string::npos ||
         client.command.find(filter) != std::string::npos ||
         std::to_string(client.pid).find(filter) != std::string::npos;
}

/// What a sort by rates compares.
double rate_of(const ClientRates& rates, Sort sort) {
  if (sort == Sort::kHeld) return rates.held_share;
  if (sort == Sort::kLaunches) return rates.launches_per_s;
  return static_cast<double>(rates.max_ns);
}

}  // namespace

bool of_steps(const shm::ClientSnapshot& client) {
  return client.steps.state != shm::StepState::kNone && !client.steps.recent_ns.empty();
}

const std::vector<std::uint64_t>& recent_ns(const shm::ClientSnapshot& client) {
  return of_steps(client) ? client.steps.recent_ns : client.recent_jobs_ns;
}

View make_view(const std::optional<shm::Snapshot>& before, shm::Snapshot now) {
  View view;
  const bool same_board = before && before->board_id == now.board_id;
  if (same_board) view.span_ns = now.taken_ns - before->taken_ns;
  const double span_s = static_cast<double>(view.span_ns) / 1e9;
  for (const shm::ClientSnapshot& client : now.clients) {
    view.rates.push_back(
        rates_of(client, same_board ? find_earlier(*before, client) : nullptr, span_s));
  }
  view.now = std::move(now);
  return view;
}

Sort next(Sort sort) {
  return static_cast<Sort>((static_cast<std::size_t>(sort) + 1) % kSortNames.size());
}

std::string_view to_string(Sort sort) { return kSortNames[static_cast<std::size_t>(sort)]; }

std::vector<std::size_t> rows_of(const View& view, Sort sort, const std::string& filter) {
  const std::vector<shm::ClientSnapshot>& clients = view.now.clients;
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < clients.size(); ++i) {
    if (matches(clients[i], filter)) rows.push_back(i);
  }
  if (sort == Sort::kPriority) return rows;  // the order of a snapshot
  std::stable_sort(rows.begin(), rows.end(), [&](std::size_t a, std::size_t b) {
    if (sort == Sort::kName) return clients[a].name < clients[b].name;
    return rate_of(view.rates[a], sort) > rate_of(view.rates[b], sort);
  });
  return rows;
}

}  // namespace sluice::tools
