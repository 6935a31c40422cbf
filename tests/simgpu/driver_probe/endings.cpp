// A forked child, contexts that were destroyed, and a device that was reset.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/simgpu/driver_probe/probe.hpp"
#include "tests/simgpu/driver_probe/queries.hpp"

namespace sluice::simgpu::probe {

void in_a_forked_child() {
  const pid_t child = fork();
  if (child == 0) {
    CUcontext current = nullptr;
    int count = 0;
    say("forked child: cuInit", cuInit(0));
    say("forked child: cuCtxGetCurrent", cuCtxGetCurrent(&current));
    say("forked child: cuDeviceGetCount", cuDeviceGetCount(&count));
    say("forked child: cuStreamQuery(0)", cuStreamQuery(nullptr));
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

void lost_contexts() {
  CUcontext made = nullptr;
  CUcontext current = nullptr;
  CUstream of_made = nullptr;
  cuCtxCreate(&made, nullptr, 0, 0);
  cuStreamCreate(&of_made, 0);
  say("ended context: destroy", cuCtxDestroy(made));
  say("ended context: get current", cuCtxGetCurrent(&current));
  say("ended context: current is the old one", current == context);
  CUcontext second = nullptr;
  cuCtxCreate(&second, nullptr, 0, 0);
  std::thread([&] {
    cuCtxSetCurrent(context);
    cuCtxDestroy(second);
  }).join();
  say("ended elsewhere: synchronise", cuCtxSynchronize());
  say("ended elsewhere: get current", cuCtxGetCurrent(&current));
  say("ended elsewhere: current is it", current == second);
  say("ended elsewhere: create a stream", cuStreamCreate(&of_made, 0));
  cuCtxSetCurrent(context);
  say("reset", cuDevicePrimaryCtxReset(0));
  CUstream made_stream = nullptr;
  unsigned flags = 0;
  int active = 7;
  say("reset: synchronise", cuCtxSynchronize());
  say("reset: create a stream", cuStreamCreate(&made_stream, 0));
  cuDevicePrimaryCtxGetState(0, &flags, &active);
  say("reset: active", active);
  say("reset: set current", cuCtxSetCurrent(context));
  CUcontext again = nullptr;
  say("reset: retain", cuDevicePrimaryCtxRetain(&again, 0));
  say("reset: the same handle", again == context);
  say("reset: synchronise after retain", cuCtxSynchronize());
  say("reset: release", cuDevicePrimaryCtxRelease(0));
  say("reset: release again", cuDevicePrimaryCtxRelease(0));
  say("reset: release once more", cuDevicePrimaryCtxRelease(0));
}

}  // namespace sluice::simgpu::probe
