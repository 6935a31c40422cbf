#pragma once
#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "controller/process.hpp"
#include "shm/board.hpp"
#include "shm/slice.hpp"
#include "shm/weight.hpp"

namespace sluice::controller {

/// The process at the other end of a connection, as the kernel describes it.
struct Peer {
  uid_t uid = 0;
  std::vector<gid_t> groups;  ///< Its group first.
  std::shared_ptr<const ClientProcess> process;

  /// Of a connected unix socket. No process if the kernel does not tell.
  static Peer of(int socket);
};

/// What a user may have.
struct Terms {
  bool admitted = true;
  int max_priority = 255;
  int max_clients = shm::kSlots;
  std::uint64_t max_memory = shm::kNoLimit;  ///< Of each client, in bytes.
  std::uint32_t max_weight = shm::kMostWeight;
  /// The longest time slice, in us. Others pay for a longer one than the driver's, so nobody has it
  /// without a word of the site, not even root.
  std::uint32_t max_slice = shm::kDriversSliceUs;
  /// The least that a critical client gives to those below it (shm/give.hpp), in 1/1000.
  std::uint32_t min_give = 0;

  /// Whether the user gets the board for reading only: who may hold nobody need not write to it.
  [[nodiscard]] bool reader() const noexcept { return max_priority == 0; }

  friend bool operator==(const Terms&, const Terms&) = default;
};

/// Whom a controller serves, and on what terms. Used by the thread of the loop only, and never
/// blocks.
class Admission {
 public:
  virtual ~Admission() = default;

  /// The user who answers for the processes of `uid`: whose rules, limits and clients they are.
  [[nodiscard]] virtual uid_t owner_of(uid_t uid) = 0;
  [[nodiscard]] virtual bool may_connect(uid_t uid) const = 0;
  /// How many connections may be open, and how many of them may belong to one user.
  [[nodiscard]] virtual std::size_t most_connections() const = 0;
  [[nodiscard]] virtual std::size_t most_connections_of_a_user() const = 0;

  /// How many devices of the board may be there for this user's clients only.
  [[nodiscard]] virtual int most_devices_of_a_user(uid_t uid) const = 0;

  [[nodiscard]] virtual Terms terms(const Peer& peer) = 0;
  /// Whether the peer may change a client of `owner`.
  [[nodiscard]] virtual bool may_change(const Peer& peer, uid_t owner) const = 0;
  /// For messages.
  [[nodiscard]] virtual std::string user_name(uid_t uid) const = 0;

  /// The descriptor of the board that clients get, for reading only if not `writable`. Stays ours.
  /// -1 if there is none to give.
  [[nodiscard]] virtual int board(bool writable) const = 0;
  /// One line about the terms, for users. Empty if there is nothing to say.
  [[nodiscard]] virtual std::string about() const = 0;
};

/// The rule of a user's own session: this user, without limits.
class OwnUser : public Admission {
 public:
  /// `board` is the descriptor of the session's board, for when it has lost its name. -1: none.
  explicit OwnUser(int board = -1) : board_(board) {}
  static OwnUser& instance();

  [[nodiscard]] uid_t owner_of(uid_t uid) override { return uid; }
  [[nodiscard]] bool may_connect(uid_t uid) const override;
  [[nodiscard]] std::size_t most_connections() const override { return kMostConnections; }
  [[nodiscard]] std::size_t most_connections_of_a_user() const override { return kMostConnections; }
  [[nodiscard]] int most_devices_of_a_user(uid_t /*uid*/) const override {
    return shm::kMaxDevices;
  }
  [[nodiscard]] Terms terms(const Peer& /*peer*/) override { return {}; }
  [[nodiscard]] bool may_change(const Peer& /*peer*/, uid_t /*owner*/) const override {
    return true;
  }
  [[nodiscard]] std::string user_name(uid_t uid) const override;
  [[nodiscard]] int board(bool /*writable*/) const override { return board_; }
  [[nodiscard]] std::string about() const override { return {}; }

 private:
  static constexpr std::size_t kMostConnections = 256;

  int board_;
};

}  // namespace sluice::controller
