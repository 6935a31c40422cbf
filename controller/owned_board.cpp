#include "controller/owned_board.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "shm/gates.hpp"

namespace sluice::controller {
namespace {

// The kernel tears down a killed process of 8 GiB in 0.6 s (measured on one H200 host).
constexpr std::uint64_t kTearDownNs = 2'000'000'000;
constexpr std::uint64_t kStaleLifeNs = 30'000'000;

}  // namespace

OwnedBoard::OwnedBoard(shm::BoardMapping mapping, bool adopted, std::uint64_t max_hold_ns)
    : mapping_(std::move(mapping)), adopted_(adopted) {
  board().heartbeat_ns.store(base::monotonic_ns());
  board().controller_pid.store(static_cast<std::uint32_t>(getpid()));
  board().controller_starts.fetch_add(1);
  board().max_hold_ns.store(max_hold_ns);
}

OwnedBoard::~OwnedBoard() { board().controller_pid.store(0); }

bool OwnedBoard::any_client_lives() const noexcept {
  const auto& slots = board().slots;
  return std::any_of(slots.begin(), slots.end(), [](const shm::Slot& slot) {
    return shm::lives(shm::SlotInfo::unpack(slot.info.load()).state);
  });
}

SessionBoard::SessionBoard(const std::string& session, std::uint64_t max_hold_ns)
    : SessionBoard(shm::BoardMapping::adopt_or_create(session), max_hold_ns) {}

SessionBoard::SessionBoard(shm::BoardMapping::Adoption adoption, std::uint64_t max_hold_ns)
    : OwnedBoard(std::move(adoption.mapping), adoption.adopted, max_hold_ns) {}

SessionBoard::~SessionBoard() {
  board().controller_pid.store(0);
  const std::uint64_t start = base::monotonic_ns();
  // Living clients remove the board themselves. Killed clients cannot, and for a moment they may
  // still look alive.
  for (std::uint64_t waited = 0; !mapping_.remove_if_unused();
       waited = base::monotonic_ns() - start) {
    if (waited > kTearDownNs || (waited > kStaleLifeNs && any_client_lives())) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// A name is away for a moment while somebody replaces it.
void SessionBoard::look_after_name(std::uint64_t now_ns) {
  constexpr std::uint64_t kLostNs = 500'000'000;
  const shm::BoardMapping::Name name = mapping_.name();
  if (name == shm::BoardMapping::Name::kOurs) lost_since_ns_ = 0;
  if (name == shm::BoardMapping::Name::kOurs || said_) return;
  if (lost_since_ns_ == 0) lost_since_ns_ = now_ns;
  if (now_ns - lost_since_ns_ < kLostNs) return;
  said_ = true;
  if (name == shm::BoardMapping::Name::kGone) {
    spdlog::warn(
        "the board's file is gone from /dev/shm: new programs get the board over the socket");
  } else {
    spdlog::error(
        "the board's file in /dev/shm is another's now: new programs and those of this controller "
        "do not hold each other; start them again");
  }
}

}  // namespace sluice::controller
