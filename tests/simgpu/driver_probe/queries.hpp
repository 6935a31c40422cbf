// The subjects of the probe, in the order in which main() asks. Each leaves the objects of
// probe.hpp usable for the next one; lost_contexts() is the last.
#pragma once
#include <cuda.h>

#include <string>

namespace sluice::simgpu::probe {

// start.cpp
void before_init();
void lookups();
void without_context();
void set_up();

// arguments.cpp
void handles_and_arguments();
void memory_operations();

// captures.cpp
/// Tries every call, each inside a new capture. `relaxed_thread`: the calling thread has the mode
/// RELAXED. `other_thread`: that is not the thread that captures.
void calls_in_captures(const std::string& title, CUstream captured, CUstreamCaptureMode mode,
                       bool relaxed_thread, bool other_thread);
void capture_rules();

// graphs.cpp
void graph_rules();

// parked.cpp
/// Tries every call while the stream waits for the gate.
void calls_while_parked(const std::string& title, bool queue_full);
void queue_depths();

// endings.cpp
void in_a_forked_child();
void lost_contexts();

}  // namespace sluice::simgpu::probe
