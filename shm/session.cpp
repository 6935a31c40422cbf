#include "shm/session.hpp"

#include "base/session_user.hpp"

namespace sluice::shm {

std::string board_name(std::string_view session) {
  return "sluice." + std::to_string(base::session_uid()) + "." + std::string(session);
}

std::string socket_path(std::string_view session) {
  return base::runtime_dir() + "/" + std::string(session) + ".sock";
}

}  // namespace sluice::shm
