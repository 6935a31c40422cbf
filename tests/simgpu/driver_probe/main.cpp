// Queries a CUDA driver about behaviour that the documentation leaves open, and prints one line per
// answer. The probe runs on the real and on the simulated driver. simgpu_answers_test compares the
// simulated answers with those recorded on an H200.
#include <cstdio>

#include "tests/simgpu/driver_probe/probe.hpp"
#include "tests/simgpu/driver_probe/queries.hpp"

namespace sluice::simgpu::probe {
namespace {

int run() {
  before_init();
  if (cuInit(0) != CUDA_SUCCESS) {
    std::fputs("driver_probe: cuInit failed; is there a driver and a device?\n", stderr);
    return 1;
  }
  lookups();
  without_context();
  set_up();
  handles_and_arguments();
  memory_operations();
  calls_in_captures("global capture", stream, CU_STREAM_CAPTURE_MODE_GLOBAL, false, false);
  calls_in_captures("global capture, thread relaxed", stream, CU_STREAM_CAPTURE_MODE_GLOBAL, true,
                    false);
  calls_in_captures("global capture, another thread", stream, CU_STREAM_CAPTURE_MODE_GLOBAL, false,
                    true);
  calls_in_captures("thread-local capture, another thread", stream,
                    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false, true);
  calls_in_captures("relaxed capture", stream, CU_STREAM_CAPTURE_MODE_RELAXED, false, false);
  calls_in_captures("global capture of a blocking stream, thread relaxed", blocking,
                    CU_STREAM_CAPTURE_MODE_GLOBAL, true, false);
  capture_rules();
  graph_rules();
  calls_while_parked("parked", false);
  calls_while_parked("parked, queue full", true);
  queue_depths();
  in_a_forked_child();
  lost_contexts();
  return 0;
}

}  // namespace
}  // namespace sluice::simgpu::probe

int main() { return sluice::simgpu::probe::run(); }
