#include "controller/memory_limits.hpp"

#include <algorithm>

#include "shm/memory_limit.hpp"
#include "shm/memory_line.hpp"

namespace sluice::controller {
namespace {

/// 0, on the board and in messages, is no limit.
std::uint64_t as_most(std::uint64_t word) { return word == 0 ? shm::kNoLimit : word; }
std::uint64_t as_word(std::uint64_t most) { return most == shm::kNoLimit ? 0 : most; }

/// What the site allowed when the client attached holds for changes too: `sluice set` may run where
/// another rule matches. Only root may give more.
std::uint64_t ceiling(const shm::Slot& slot, const Peer& peer, const Terms& terms) {
  const std::uint64_t first = as_most(slot.memory_ceiling.load());
  return peer.uid == 0 ? terms.max_memory : std::min(terms.max_memory, first);
}

}  // namespace

void begin_memory_limit(shm::Slot& slot, const Terms& terms, std::uint64_t asked,
                        std::string& notice) {
  slot.memory_ceiling.store(as_word(terms.max_memory));
  slot.memory_limit.store(as_word(std::min(as_most(asked), terms.max_memory)));
  if (asked == 0 || asked <= terms.max_memory || !notice.empty()) return;
  notice = "memory " + shm::memory_limit_text(asked) +
           " is above the site policy's limit; runs with " +
           shm::memory_limit_text(terms.max_memory);
}

std::string fault_of_memory_limit(const shm::Slot& slot, const Peer& peer, const Terms& terms,
                                  std::uint64_t asked) {
  const std::uint64_t most = ceiling(slot, peer, terms);
  if (asked <= most) return {};
  return "memory " + shm::memory_limit_text(asked) + ": the site policy allows at most " +
         shm::memory_limit_text(most);
}

std::string change_memory_limit(shm::Slot& slot, const Peer& peer, const Terms& terms,
                                std::uint64_t asked) {
  const std::uint64_t limit = as_word(std::min(as_most(asked), ceiling(slot, peer, terms)));
  const std::uint64_t before = slot.memory_limit.exchange(limit);
  if (before == limit) return {};
  return ", memory " + shm::memory_limit_text(before) + " -> " + shm::memory_limit_text(limit);
}

}  // namespace sluice::controller
