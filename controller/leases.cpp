#include "controller/leases.hpp"

#include <algorithm>

namespace sluice::controller {
namespace {

constexpr std::size_t kMaxLeases = 256;  // each holds a file descriptor

}  // namespace

bool Leases::add(std::shared_ptr<const ClientProcess> process) {
  expire();
  const bool known = std::any_of(held_.begin(), held_.end(), [&](const auto& held) {
    return held->pid() == process->pid();  // alive, so the pid was not reused
  });
  if (known) return true;
  if (held_.size() >= kMaxLeases) return false;
  held_.push_back(std::move(process));
  return true;
}

void Leases::expire() {
  std::erase_if(held_, [](const auto& held) { return held->ended(); });
}

}  // namespace sluice::controller
