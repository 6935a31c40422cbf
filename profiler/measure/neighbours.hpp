#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "shm/mapping.hpp"

namespace sluice::profiler {

/// What the other clients of a session do on a GPU, read from the board. A measurement during which
/// one of them worked is worth nothing. Outside of a session there are no neighbours.
class Neighbours {
 public:
  /// `uuid`: of the GPU.
  Neighbours(std::string session, const std::array<std::uint8_t, 16>& uuid)
      : session_(std::move(session)), uuid_(uuid) {}

  /// Opens the board of the session as it is now. Call it now and then: a board may be new.
  void refresh();

  /// The work of all others so far, and for how long this process was held.
  struct Stamp {
    std::uint64_t jobs = 0;  ///< Begun and ended jobs.
    std::uint64_t launches = 0;
    std::uint64_t held_ns = 0;
    bool active = false;  ///< Another client has a job now, or this process is held.
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  [[nodiscard]] Stamp stamp() const;

  /// Whether another client worked, or this process was held, at any time between two stamps.
  [[nodiscard]] static bool worked_between(const Stamp& from, const Stamp& to) {
    return from.active || from != to;
  }

  /// Whether this process's policy may make it wait on the host for its own launches. Its queue
  /// must then never be stopped.
  [[nodiscard]] bool host_waits() const;

 private:
  [[nodiscard]] const shm::Slot* own_slot() const;
  [[nodiscard]] bool on_our_device(const shm::Slot& slot) const;

  std::string session_;
  std::array<std::uint8_t, 16> uuid_;
  std::unique_ptr<shm::BoardMapping> board_;
};

}  // namespace sluice::profiler
