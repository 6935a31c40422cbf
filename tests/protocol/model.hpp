#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "shm/board.hpp"

/// A small board whose every access is a scheduling point, as a View for shm/gates.hpp.
namespace sluice::protocol {

inline constexpr int kModelSlots = 4;
inline constexpr int kMaxProcesses = 6;

/// How a process is. Kept beside the words of the board, because the controller reads it.
enum class Life : std::uint8_t {
  kLives,
  kNoticed,  ///< Its watcher's mutex was released; other threads of it may still run.
  kGone,     ///< No thread of it runs any more.
  kStopped,  ///< SIGSTOP for ever: it takes no step, and nobody learns of it.
};

// Indices of the model's words.
constexpr int info_word(int slot) { return slot; }
constexpr int job_word(int slot) { return kModelSlots + slot; }
constexpr int gate_word(int slot) { return 2 * kModelSlots + slot; }
constexpr int waived_word(int target, int holder) {
  return 3 * kModelSlots + target * kModelSlots + holder;
}
inline constexpr int kUsedWord = 3 * kModelSlots + kModelSlots * kModelSlots;
constexpr int life_word(int process) { return kUsedWord + 1 + process; }
inline constexpr int kWords = kUsedWord + 1 + kMaxProcesses;
static_assert(kWords <= 64, "sets of words are kept in one 64-bit mask");

std::string word_name(int word);

struct Access {
  enum class Kind : std::uint8_t { kLoad, kStore, kOr, kAnd, kAdd, kExchange };
  Kind kind = Kind::kLoad;
  std::uint8_t word = 0;
  std::uint64_t operand = 0;
  std::uint64_t expected = 0;  ///< Of kExchange.
};
std::string to_string(const Access& access, std::uint64_t before);

/// The words, with a hash that follows every change.
class Memory {
 public:
  [[nodiscard]] std::uint64_t operator[](int word) const {
    return words_[static_cast<std::size_t>(word)];
  }
  void set(int word, std::uint64_t value);
  /// Performs the access and returns the value from before it.
  std::uint64_t apply(const Access& access);

  [[nodiscard]] std::uint64_t hash(int half) const { return hash_[static_cast<std::size_t>(half)]; }
  [[nodiscard]] shm::SlotInfo info(int slot) const {
    return shm::SlotInfo::unpack((*this)[info_word(slot)]);
  }
  [[nodiscard]] Life life(int process) const {
    return static_cast<Life>((*this)[life_word(process)]);
  }

 private:
  std::array<std::uint64_t, kWords> words_{};
  std::array<std::uint64_t, 2> hash_{};
};

/// Where the accesses of a View go: to the explorer, or straight to a Memory.
class Port {
 public:
  virtual std::uint64_t access(const Access& access) = 0;

 protected:
  ~Port() = default;
};

class ModelWord {
 public:
  ModelWord(Port& port, int word) : port_(port), word_(static_cast<std::uint8_t>(word)) {}
  [[nodiscard]] std::uint64_t load() const { return go(Access::Kind::kLoad, 0); }
  void store(std::uint64_t value) { go(Access::Kind::kStore, value); }
  std::uint64_t fetch_or(std::uint64_t bits) { return go(Access::Kind::kOr, bits); }
  std::uint64_t fetch_and(std::uint64_t bits) { return go(Access::Kind::kAnd, bits); }
  std::uint64_t fetch_add(std::uint64_t n) { return go(Access::Kind::kAdd, n); }
  bool compare_exchange(std::uint64_t& expected, std::uint64_t desired) {
    const std::uint64_t before = go(Access::Kind::kExchange, desired, expected);
    const bool done = before == expected;
    expected = before;
    return done;
  }

 private:
  std::uint64_t go(Access::Kind kind, std::uint64_t operand, std::uint64_t expected = 0) const {
    // Slots that the model leaves out: reserve() and bury() go through all 63.
    if (word_ >= kWords) return 0;
    return port_.access({kind, word_, operand, expected});
  }
  Port& port_;
  std::uint8_t word_;
};

class ModelView {
 public:
  explicit ModelView(Port& port) : port_(port) {}
  ModelWord info(int s) { return {port_, info_word(s)}; }
  ModelWord job(int s) { return {port_, job_word(s)}; }
  ModelWord gate(int s) { return {port_, s < kModelSlots ? gate_word(s) : kWords}; }
  ModelWord used() { return {port_, kUsedWord}; }
  ModelWord waived(int target, int holder) {
    return {port_, holder < kModelSlots ? waived_word(target, holder) : kWords};
  }
  void closed(int /*slot*/) {}
  void opened(int /*slot*/) {}

  /// What the controller can find out about a process (Life).
  Life life(int process) { return static_cast<Life>(ModelWord(port_, life_word(process)).load()); }

 private:
  Port& port_;
};

/// Sends accesses straight to a memory: for preparing a scenario, and for ticks at its end.
class DirectPort final : public Port {
 public:
  explicit DirectPort(Memory& memory) : memory_(memory) {}
  std::uint64_t access(const Access& access) override { return memory_.apply(access); }

 private:
  Memory& memory_;
};

}  // namespace sluice::protocol
