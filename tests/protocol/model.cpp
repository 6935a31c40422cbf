#include "tests/protocol/model.hpp"

#include <sstream>

namespace sluice::protocol {
namespace {

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

std::uint64_t word_hash(int word, std::uint64_t value, std::uint64_t salt) {
  return mix(mix(value + salt) + static_cast<std::uint64_t>(word + 1) * 0x9e3779b97f4a7c15U);
}

std::string show(int word, std::uint64_t value) {
  static constexpr std::array<const char*, 6> kStates{"free",       "reserved", "live",
                                                      "failedopen", "leaving",  "dead"};
  std::ostringstream text;
  if (word < job_word(0)) {
    const auto info = shm::SlotInfo::unpack(value);
    const auto state = static_cast<std::size_t>(info.state);
    text << (state < kStates.size() ? kStates[state] : "?") << "/p" << int{info.priority} << "/d"
         << int{info.device} << "/g" << info.generation;
  } else {
    text << std::hex << value;
  }
  return text.str();
}

}  // namespace

std::string word_name(int word) {
  const auto slot = [&](const char* name, int first) {
    return std::string(name) + "[" + std::to_string(word - first) + "]";
  };
  if (word < job_word(0)) return slot("info", 0);
  if (word < gate_word(0)) return slot("job", job_word(0));
  if (word < waived_word(0, 0)) return slot("gate", gate_word(0));
  if (word == kUsedWord) return "used";
  if (word >= reader_word(0)) return slot("reader", reader_word(0));
  if (word >= draining_word(0)) return slot("draining", draining_word(0));
  if (word >= outranked_word(0)) return slot("outranked", outranked_word(0));
  if (word >= mutex_word(0)) return slot("mutex", mutex_word(0));
  if (word > kUsedWord) return slot("life", life_word(0));
  const int index = word - waived_word(0, 0);
  return "waived[" + std::to_string(index / kModelSlots) + "][" +
         std::to_string(index % kModelSlots) + "]";
}

std::string to_string(const Access& access, std::uint64_t before) {
  const std::string name = word_name(access.word);
  switch (access.kind) {
    case Access::Kind::kLoad:
      return name + " is " + show(access.word, before);
    case Access::Kind::kStore:
      return name + " = " + show(access.word, access.operand);
    case Access::Kind::kOr:
      return name + " |= " + show(access.word, access.operand) + ", was " +
             show(access.word, before);
    case Access::Kind::kAnd:
      return name + " &= ~" + show(access.word, ~access.operand) + ", was " +
             show(access.word, before);
    case Access::Kind::kAdd:
      return name + " += " + show(access.word, access.operand) + ", was " +
             show(access.word, before);
    case Access::Kind::kExchange:
      return name + " exchanged to " + show(access.word, access.operand) +
             (before == access.expected ? "" : " FAILS") + ", was " + show(access.word, before);
  }
  return name;
}

void Memory::set(int word, std::uint64_t value) {
  std::uint64_t& held = words_[static_cast<std::size_t>(word)];
  for (std::size_t half = 0; half < hash_.size(); ++half) {
    const std::uint64_t salt = half * 0x632be59bd9b4e019U;
    hash_[half] ^= word_hash(word, held, salt) ^ word_hash(word, value, salt);
  }
  held = value;
}

std::uint64_t Memory::apply(const Access& access) {
  const std::uint64_t before = (*this)[access.word];
  std::uint64_t after = before;
  switch (access.kind) {
    case Access::Kind::kLoad:
      break;
    case Access::Kind::kStore:
      after = access.operand;
      break;
    case Access::Kind::kOr:
      after = before | access.operand;
      break;
    case Access::Kind::kAnd:
      after = before & access.operand;
      break;
    case Access::Kind::kAdd:
      after = before + access.operand;
      break;
    case Access::Kind::kExchange:
      if (before == access.expected) after = access.operand;
      break;
  }
  if (after != before) set(access.word, after);
  return before;
}

}  // namespace sluice::protocol
