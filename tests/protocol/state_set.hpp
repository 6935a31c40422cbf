#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::protocol {

/// A set of 128-bit state hashes with open addressing. Among ten million states, two share a hash
/// with a probability below 1e-24.
class StateSet {
 public:
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;

    void absorb(std::uint64_t a, std::uint64_t b) {
      low = rotate(low ^ (a * 0x9e3779b97f4a7c15U)) * 0xbf58476d1ce4e5b9U;
      high = rotate(high ^ (b * 0xc2b2ae3d27d4eb4fU)) * 0x94d049bb133111ebU;
    }
    friend bool operator==(const Key&, const Key&) = default;

   private:
    static std::uint64_t rotate(std::uint64_t v) { return ((v << 31U) | (v >> 33U)) ^ (v >> 7U); }
  };

  StateSet() : table_(1U << 10U) {}

  /// Returns false if the key was already in the set.
  bool insert(Key key) {
    if (key == Key{}) key.low = 1;  // a zero key marks a free place
    if (size_ * 10 > table_.size() * 7) grow();
    if (!place(key)) return false;
    ++size_;
    return true;
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::vector<std::uint64_t> values() const {
    std::vector<std::uint64_t> lows;
    for (const Key& key : table_) {
      if (key != Key{}) lows.push_back(key.low);
    }
    return lows;
  }

 private:
  bool place(const Key& key) {
    std::size_t at = key.low & (table_.size() - 1);
    while (table_[at] != Key{}) {
      if (table_[at] == key) return false;
      at = (at + 1) & (table_.size() - 1);
    }
    table_[at] = key;
    return true;
  }

  void grow() {
    std::vector<Key> old(table_.size() * 2);
    old.swap(table_);
    for (const Key& key : old) {
      if (key != Key{}) place(key);
    }
  }

  std::vector<Key> table_;
  std::size_t size_ = 0;
};

}  // namespace sluice::protocol
