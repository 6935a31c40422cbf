#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "shm/board.hpp"

/// A small board for shm/gates.hpp. Every access to it is a scheduling point.
namespace sluice::protocol {

inline constexpr int kModelSlots = 4;
inline constexpr int kMaxProcesses = 6;

/// The life of a process. Stored among the model's words, because the controller reads it.
enum class Life : std::uint8_t {
  kLives,
  kFoundDead,  ///< Its watcher's mutex was released; its other threads may still run.
  kGone,       ///< None of its threads runs any more.
  kStopped,    ///< SIGSTOP: it takes no step. Others see only that it does not beat.
  kContinued,  ///< It was stopped and runs again.
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
/// The robust mutex of a slot: the generation of the client that holds it, plus 1; 0 if none does.
constexpr int mutex_word(int slot) { return life_word(kMaxProcesses) + slot; }
constexpr int outranked_word(int slot) { return mutex_word(kModelSlots) + slot; }
constexpr int draining_word(int slot) { return outranked_word(kModelSlots) + slot; }
/// 1 if the slot has a reader, whose owner cannot write to the board.
constexpr int reader_word(int slot) { return draining_word(kModelSlots) + slot; }
inline constexpr int kWords = reader_word(kModelSlots);
static_assert(kWords <= 64, "sets of words are kept in one 64-bit mask");

std::string word_name(int word);

struct Access {
  enum class Kind : std::uint8_t { kLoad, kStore, kOr, kAnd, kAdd, kExchange };
  Kind kind = Kind::kLoad;
  std::uint8_t word = 0;
  std::uint64_t operand = 0;
  std::uint64_t expected = 0;  ///< For kExchange.
};
std::string to_string(const Access& access, std::uint64_t before);

/// The words, with a hash that is updated on every change.
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

/// Receives the accesses of a View: the explorer, or a Memory.
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
    // The model has fewer slots than the 63 that reserve() and bury() visit.
    if (word_ >= kWords) return 0;
    return port_.access({kind, word_, operand, expected});
  }
  Port& port_;
  std::uint8_t word_;
};

class ModelView {
 public:
  explicit ModelView(Port& port) : port_(port) {}
  ModelWord info(int s) { return {port_, s < kModelSlots ? info_word(s) : kWords}; }
  ModelWord job(int s) { return {port_, job_word(s)}; }
  ModelWord gate(int s) { return {port_, s < kModelSlots ? gate_word(s) : kWords}; }
  ModelWord used() { return {port_, kUsedWord}; }
  ModelWord waived(int target, int holder) {
    return {port_, holder < kModelSlots ? waived_word(target, holder) : kWords};
  }
  ModelWord outranked(int s) { return {port_, outranked_word(s)}; }
  ModelWord draining(int s) { return {port_, draining_word(s)}; }
  ModelWord mutex(int s) { return {port_, mutex_word(s)}; }
  ModelWord reader(int s) { return {port_, reader_word(s)}; }
  bool watched(int s) { return reader(s).load() != 0 || mutex(s).load() != 0; }
  void closed(int /*slot*/) {}
  void opened(int /*slot*/, std::uint64_t /*bits*/) {}

  /// The Life of a process, as far as the controller can find it out.
  Life life(int process) { return static_cast<Life>(ModelWord(port_, life_word(process)).load()); }

 private:
  Port& port_;
};

/// Sends accesses directly to a memory: for the setup of a scenario and the ticks at its end.
class DirectPort final : public Port {
 public:
  explicit DirectPort(Memory& memory) : memory_(memory) {}
  std::uint64_t access(const Access& access) override { return memory_.apply(access); }

 private:
  Memory& memory_;
};

}  // namespace sluice::protocol
