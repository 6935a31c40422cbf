#pragma once
#include <cstddef>

/// What a client measures of itself: a server that does nothing.
namespace sluice::server::workload {

/// Reads each request and answers it with the same bytes, `answer_bytes` of FP32 zeros, over gRPC
/// and HTTP on 127.0.0.1. Its one model has any name, and an input with any number of items and
/// values. gRPC runs in one thread on a completion queue, HTTP in a thread for each connection.
/// Prints its ports as JSON, and returns never: a signal ends the process. Throws RunError if it
/// cannot listen.
[[noreturn]] void run_empty_server(std::size_t answer_bytes);

}  // namespace sluice::server::workload
