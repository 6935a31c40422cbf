#pragma once
#include <string>

#include "base/fd.hpp"
#include "shm/messages.hpp"

/// Requests to a controller. A request that cannot be sent or is not answered throws, which fails
/// the test.
namespace sluice::test {

/// A connection to the session's controller.
[[nodiscard]] base::Fd connect_to(const std::string& session);

/// A request that a controller grants, for the device whose UUID consists of this byte.
[[nodiscard]] shm::Request good_request(int priority = 0, int device = 1);

/// The controller's reply to a request on this connection.
shm::Reply ask_controller(int fd, const shm::Request& request);

}  // namespace sluice::test
