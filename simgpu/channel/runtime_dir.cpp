#include "simgpu/channel/runtime_dir.hpp"

#include <sys/un.h>

#include <cstdlib>
#include <exception>

#include "base/runtime_dir.hpp"
#include "base/session.hpp"

namespace sluice::simgpu {

std::string session_name() {
  const char* variable = std::getenv("SLUICE_SESSION");
  return variable != nullptr && *variable != 0 ? variable : std::string(base::kDefaultSession);
}

std::string socket_path() {
  const std::string session = session_name();
  const std::string path = base::runtime_dir() + "/" + session + ".simgpu";
  const bool usable =
      base::valid_session_name(session) && path.size() < sizeof(sockaddr_un::sun_path);
  return usable ? path : std::string();
}

base::Fd lock_runtime_dir() {
  try {
    return base::lock_runtime_dir();
  } catch (const std::exception&) {
    return {};  // the driver can report this only as an error code
  }
}

}  // namespace sluice::simgpu
