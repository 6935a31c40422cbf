#include "shm/session.hpp"

#include "base/node_service.hpp"
#include "base/session.hpp"

namespace sluice::shm {

std::string board_name(std::string_view session) {
  return "sluice." + std::to_string(base::session_uid()) + "." + std::string(session);
}

std::string socket_path(std::string_view session) {
  if (session == base::kNodeSession) return base::node_socket();
  return base::runtime_dir() + "/" + std::string(session) + ".sock";
}

}  // namespace sluice::shm
