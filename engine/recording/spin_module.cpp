#include "engine/recording/spin_module.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "engine/recording/spin_ptx.hpp"

namespace sluice::engine {
namespace {

constexpr std::string_view kSpin = "sluice_spin";
/// With prefix and number, a name fits into the simulated GPU's log (simgpu/channel/layout.hpp).
constexpr std::size_t kMaxCharacters = 100;

/// Not isalnum(), which accepts more letters than PTX in some locales.
bool in_identifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Replaces each run of other characters between two allowed ones by one underscore.
std::string identifier(std::string_view name) {
  std::string text;
  bool gap = false;
  for (const char c : name) {
    if (in_identifier(c)) {
      if (gap && !text.empty()) text += '_';
      text += c;
    }
    gap = !in_identifier(c);
  }
  text.resize(std::min(text.size(), kMaxCharacters));
  return text.empty() ? "kernel" : text;
}

}  // namespace

std::vector<std::string> spin_entry_names(const std::vector<std::string>& recorded) {
  std::vector<std::string> names;
  std::set<std::string> taken;
  std::map<std::string, int> last_numbers;
  for (const std::string& name : recorded) {
    const std::string unnumbered = std::string(kSpin) + '_' + identifier(name);
    int& number = last_numbers[unnumbered];
    std::string entry;
    do {
      ++number;
      entry = number == 1 ? unnumbered : unnumbered + '_' + std::to_string(number);
    } while (!taken.insert(entry).second);
    names.push_back(entry);
  }
  return names;
}

std::string spin_module(const std::vector<std::string>& entries) {
  std::string text = kSpinPtx;
  const std::string kernel = text.substr(text.find(".visible"));
  const std::size_t at = kernel.find(kSpin);
  for (const std::string& entry : entries) {
    text += '\n' + kernel;
    text.replace(text.size() - kernel.size() + at, kSpin.size(), entry);
  }
  return text;
}

}  // namespace sluice::engine
