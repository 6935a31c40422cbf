#include "tests/support/requests.hpp"

#include <stdexcept>

#include "shm/policy.hpp"
#include "shm/session.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::test {

base::Fd connect_to(const std::string& session) {
  base::Fd fd(shm::connect_controller(shm::socket_path(session).c_str()));
  if (!fd) throw std::runtime_error("cannot connect to the controller of " + session);
  return fd;
}

shm::Request good_request(int priority, int device) {
  shm::Request request;
  request.priority = static_cast<std::uint32_t>(priority);
  request.policy = shm::kDefaultPolicy.pack();
  request.device_uuid.fill(static_cast<std::uint8_t>(device));
  return request;
}

shm::Reply ask_controller(int fd, const shm::Request& request) {
  shm::Reply reply;
  const int error = shm::ask(fd, request, reply, static_cast<int>(kPatience.count()));
  if (error != 0) throw std::runtime_error("no reply: error " + std::to_string(error));
  return reply;
}

}  // namespace sluice::test
