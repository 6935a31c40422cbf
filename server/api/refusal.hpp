#pragma once
#include <string>
#include <utility>

#include "server/service.hpp"

namespace sluice::server::api {

/// What a codec or a check throws for a request that it refuses. Caught where the call is answered.
struct Refusal {
  Status status;
};

[[noreturn]] inline void refuse(std::string message, Code code = Code::kInvalidArgument) {
  throw Refusal{Status{code, std::move(message), 0}};
}

}  // namespace sluice::server::api
