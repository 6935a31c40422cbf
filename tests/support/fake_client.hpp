#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/process.hpp"

namespace sluice::test {

/// A process of standins/fake_client.cpp: a client without a GPU that has a watcher.
class FakeClient {
 public:
  /// `through`: a program with arguments that becomes the client.
  FakeClient(const std::string& session, int priority, int device = 1,
             std::vector<std::string> through = {});

  [[nodiscard]] bool attached() const { return slot_ >= 0; }
  [[nodiscard]] int slot() const { return slot_; }
  [[nodiscard]] std::uint32_t generation() const { return generation_; }
  [[nodiscard]] std::uint64_t board_id() const { return board_id_; }
  /// The first line of the client: its slot, or the reason of the refusal.
  [[nodiscard]] const std::string& greeting() const { return greeting_; }
  /// Sends an order and waits until it is done.
  void order(const std::string& words);
  Process& process() { return process_; }
  [[nodiscard]] pid_t pid() const { return process_.pid(); }

 private:
  Process process_;
  std::string greeting_;
  int slot_ = -1;
  std::uint32_t generation_ = 0;
  std::uint64_t board_id_ = 0;
};

}  // namespace sluice::test
