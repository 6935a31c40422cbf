#pragma once
#include <string>
#include <string_view>

#include "base/session.hpp"

namespace sluice::shm {

/// Name of the session's board in /dev/shm: `sluice.<uid>.<session>`. The session `node` has none.
[[nodiscard]] std::string board_name(std::string_view session);

/// Path of the controller's socket: `<base::runtime_dir()>/<session>.sock`, or base::node_socket().
[[nodiscard]] std::string socket_path(std::string_view session);

}  // namespace sluice::shm
