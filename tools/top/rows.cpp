#include "tools/top/rows.hpp"

#include <algorithm>
#include <array>

namespace sluice::tools {
namespace {

constexpr std::array<std::string_view, 5> kNames{"priority", "name", "held", "launches", "p99"};

bool matches(const shm::ClientSnapshot& client, const std::string& filter) {
  return client.name.find(filter) != std::string::npos ||
         client.command.find(filter) != std::string::npos ||
         std::to_string(client.pid).find(filter) != std::string::npos;
}

/// What a sort by rates compares.
double rate_of(const ClientRates& rates, Sort sort) {
  if (sort == Sort::kHeld) return rates.held_share;
  if (sort == Sort::kLaunches) return rates.launches_per_s;
  return static_cast<double>(rates.p99_ns);
}

}  // namespace

Sort next(Sort sort) {
  return static_cast<Sort>((static_cast<std::size_t>(sort) + 1) % kNames.size());
}

std::string_view to_string(Sort sort) { return kNames[static_cast<std::size_t>(sort)]; }

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
