#include "runner/run/session_end.hpp"

#include <chrono>
#include <exception>
#include <filesystem>
#include <thread>

#include "base/session.hpp"
#include "shm/mapping.hpp"
#include "shm/session.hpp"

namespace sluice::runner {

void remove_what_a_killed_controller_left(const std::string& session) noexcept {
  try {
    // Only if no controller and no client has the board.
    shm::BoardMapping::attach(session).remove_if_unused(shm::socket_path(session));
  } catch (const std::exception&) {
    return;  // there is no board, or one that is not ours to remove
  }
  base::remove_runtime_dir_if_empty();
}

std::vector<std::string> wait_for_session_end(const std::string& session, double limit_s) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(limit_s);
  const std::vector<std::string> files{"/dev/shm/" + shm::board_name(session),
                                       shm::socket_path(session),
                                       base::runtime_dir() + "/" + session + ".simgpu"};
  for (;;) {
    std::vector<std::string> left;
    for (const std::string& path : files) {
      std::error_code ignored;
      if (std::filesystem::exists(path, ignored)) left.push_back(path);
    }
    if (left.empty() || Clock::now() >= deadline) return left;
    remove_what_a_killed_controller_left(session);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace sluice::runner
