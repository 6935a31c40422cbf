#pragma once
#include <string>
#include <string_view>

namespace sluice::server::api {

/// W3C Trace Context: the `traceparent` of our part of a trace, with the trace's id and an id of
/// our own. received: the client's; empty, or anything else that is none, gives an empty text.
[[nodiscard]] std::string next_traceparent(std::string_view received);

}  // namespace sluice::server::api
