#pragma once
#include <memory>

#include "server/api/activity.hpp"
#include "server/api/generic_calls.hpp"
#include "server/service/service.hpp"

namespace sluice::server::api {

constexpr const char* kModelInfer = "/inference.GRPCInferenceService/ModelInfer";

/// Answers one ModelInfer. service, activity: must live longer.
[[nodiscard]] std::unique_ptr<GenericCall::Handler> infer_call(Service& service, Activity& activity,
                                                               GenericCall& call);

}  // namespace sluice::server::api
