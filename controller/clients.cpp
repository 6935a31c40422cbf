#include "controller/clients.hpp"

#include <atomic>

namespace sluice::controller {

std::string Clients::describe(int index) {
  const shm::Slot& of = slot(index);
  return "slot " + std::to_string(index) + ", pid " + std::to_string(of.pid.load()) + " (" +
         load_text(of.command.data(), of.command.size()) + ")";
}

void update_outranked(Clients& clients) {
  shm::for_each_other(clients.view.used().load(), shm::kControllerBit,
                      [&](int slot) { shm::settle_outranked(clients.view, slot); });
}

void store_text(char* field, std::size_t size, std::string_view text) noexcept {
  for (std::size_t i = 0; i < size; ++i) {
    const char c = i + 1 < size && i < text.size() ? text[i] : '\0';
    std::atomic_ref<char>(field[i]).store(c, std::memory_order_relaxed);
  }
}

std::string load_text(const char* field, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    // Only C++26 has atomic_ref of a const object. The cast is safe, because load() writes nothing.
    const char c =
        std::atomic_ref<char>(const_cast<char&>(field[i])).load(std::memory_order_relaxed);
    if (c == '\0') break;
    text += c;
  }
  return printable(text, size);
}

}  // namespace sluice::controller
