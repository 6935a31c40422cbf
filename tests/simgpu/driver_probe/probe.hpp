// What all queries share: the objects that they use, and how an answer is printed.
#pragma once
#include <cuda.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sluice::simgpu::probe {

/// PTX with the kernel `sluice_spin`, which takes as many ns as its argument says.
extern const char* const kModule;

/// Made by set_up(). Some queries replace a stream or an event.
extern CUcontext context;
extern CUmodule loaded;
extern CUfunction spin;
extern CUstream stream;
extern CUstream other;
extern CUstream blocking;
extern CUevent recorded;  ///< Recorded outside any capture, completed.
extern CUevent fresh;     ///< Never recorded.
/// A registered page for memory operations. Waits pass while it is 0.
extern std::uint64_t* gate;
extern CUdeviceptr gate_address;

void say(const std::string& question, long answer);
CUresult launch(CUstream on, std::uint64_t ns = 1000);
CUstreamCaptureStatus capture_status(CUstream of);

/// A call that is tried in captures and while the stream is parked.
struct Call {
  const char* name;
  std::function<CUresult()> run;
};
std::vector<Call> calls_to_try();

}  // namespace sluice::simgpu::probe
