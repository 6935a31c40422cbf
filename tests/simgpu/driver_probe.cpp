// Queries a CUDA driver about behaviour that the documentation leaves open, and prints one line per
// answer. The probe runs on the real and on the simulated driver. simgpu_answers_test compares the
// simulated answers with those recorded on an H200.
#include <cuda.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr const char* kModule = R"(.version 7.8
.target sm_80
.address_size 64
.visible .entry sluice_spin(.param .u64 ns)
{
  .reg .u64 %rd<5>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [ns];
  mov.u64 %rd2, %globaltimer;
again:
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra again;
  ret;
}
)";

void say(const std::string& question, long answer) {
  std::printf("%s: %ld\n", question.c_str(), answer);
  std::fflush(stdout);
}

CUcontext context;
CUmodule loaded;
CUfunction spin;
CUstream stream;
CUstream other;
CUstream blocking;
CUevent recorded;  // recorded outside any capture, completed
CUevent fresh;     // never recorded
std::uint64_t* gate;
CUdeviceptr gate_address;

CUresult launch(CUstream on, std::uint64_t ns = 1000) {
  void* arguments[] = {&ns};
  return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, on, arguments, nullptr);
}

void before_init() {
  int count = 0;
  CUcontext current = nullptr;
  CUdeviceptr memory = 0;
  const char* name = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  void* function = nullptr;
  say("before init: cuDriverGetVersion", cuDriverGetVersion(&count));
  say("before init: cuDeviceGetCount", cuDeviceGetCount(&count));
  say("before init: cuCtxGetCurrent", cuCtxGetCurrent(&current));
  say("before init: cuMemAlloc", cuMemAlloc(&memory, 16));
  say("before init: cuGetErrorName", cuGetErrorName(CUDA_ERROR_NOT_READY, &name));
  say("before init: cuStreamSynchronize(0)", cuStreamSynchronize(nullptr));
  say("before init: cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode(&mode));
  say("before init: cuGetProcAddress", cuGetProcAddress("cuInit", &function, 12000, 0, nullptr));
}

void ask_address(const char* name, int version, cuuint64_t flags) {
  void* function = reinterpret_cast<void*>(1);
  unsigned result = 77;  // not a value of the enumeration, to see whether the driver writes it
  const std::string question = std::string("lookup '") + name + "' " + std::to_string(version) +
                               " flags " + std::to_string(flags);
  say(question + ": status",
      cuGetProcAddress(name, &function, version, flags,
                       reinterpret_cast<CUdriverProcAddressQueryResult*>(&result)));
  say(question + ": result", result);
  say(question + ": address is null", function == nullptr);
  say(question + ": is cuGetProcAddress_v2",
      function == reinterpret_cast<void*>(&cuGetProcAddress));
  say(question + ": without a result", cuGetProcAddress(name, &function, version, flags, nullptr));
}

void lookups() {
  ask_address("cuLaunchKernel", 13000, 0);
  ask_address("cuLaunchKernel", 3000, 0);
  ask_address("cuLaunchKernel_ptsz", 13000, 0);
  ask_address("cuStreamWaitValue64_v2", 13000, 0);
  ask_address("cuNoSuchThing", 13000, 0);
  ask_address("", 13000, 0);
  ask_address("cuGetProcAddress", 11030, 0);
  ask_address("cuGetProcAddress", 12000, 0);
  ask_address("cuGetProcAddress_v2", 12000, 0);
  ask_address("cuLaunchKernel", 13000, 3);
  ask_address("cuLaunchKernel", 13000, 4);
}

void without_context() {
  CUstream made = nullptr;
  CUevent event = nullptr;
  CUdevice device = 0;
  void* host = nullptr;
  CUcontext popped = nullptr;
  unsigned long long id = 0;
  CUstreamCaptureStatus capturing;
  say("no context: cuStreamCreate", cuStreamCreate(&made, 0));
  say("no context: cuEventCreate", cuEventCreate(&event, 0));
  say("no context: cuCtxGetDevice", cuCtxGetDevice(&device));
  say("no context: cuCtxSynchronize", cuCtxSynchronize());
  say("no context: cuCtxPopCurrent", cuCtxPopCurrent(&popped));
  say("no context: cuMemHostAlloc", cuMemHostAlloc(&host, 64, 0));
  say("no context: cuStreamSynchronize(0)", cuStreamSynchronize(nullptr));
  say("no context: cuStreamGetId(0)", cuStreamGetId(nullptr, &id));
  say("no context: cuStreamIsCapturing(0)", cuStreamIsCapturing(nullptr, &capturing));
  say("no context: cuModuleLoadData", cuModuleLoadData(&loaded, kModule));
}

void set_up() {
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  say("set up: cuModuleLoadData", cuModuleLoadData(&loaded, kModule));
  cuModuleGetFunction(&spin, loaded, "sluice_spin");
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
  cuStreamCreate(&blocking, CU_STREAM_DEFAULT);
  cuEventCreate(&recorded, 0);
  cuEventCreate(&fresh, 0);
  gate = static_cast<std::uint64_t*>(
      mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  say("set up: cuMemHostRegister",
      cuMemHostRegister(gate, 4096, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  cuMemHostGetDevicePointer(&gate_address, gate, 0);
  launch(stream);
  cuEventRecord(recorded, stream);
  cuCtxSynchronize();
}

void handles_and_arguments() {
  float ms = 0;
  CUfunction function = nullptr;
  int value = 0;
  say("cuEventQuery(never recorded)", cuEventQuery(fresh));
  say("cuEventSynchronize(never recorded)", cuEventSynchronize(fresh));
  say("cuEventElapsedTime(never recorded)", cuEventElapsedTime(&ms, recorded, fresh));
  say("cuEventQuery(null)", cuEventQuery(nullptr));
  say("cuEventRecord(null)", cuEventRecord(nullptr, stream));
  say("cuEventDestroy(null)", cuEventDestroy(nullptr));
  say("cuStreamDestroy(null)", cuStreamDestroy(nullptr));
  say("cuStreamWaitEvent(null)", cuStreamWaitEvent(stream, nullptr, 0));
  say("cuModuleGetFunction(null module)", cuModuleGetFunction(&function, nullptr, "x"));
  say("cuModuleGetFunction(missing)", cuModuleGetFunction(&function, loaded, "missing"));
  say("cuModuleUnload(null)", cuModuleUnload(nullptr));
  say("cuLaunchKernel(null)",
      cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  say("cuLaunchKernel(empty grid)",
      cuLaunchKernel(spin, 0, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  say("cuLaunchKernel(2048 threads)",
      cuLaunchKernel(spin, 1, 1, 1, 2048, 1, 1, 0, stream, nullptr, nullptr));
  say("cuLaunchKernel(no arguments)",
      cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  say("cuGraphDestroy(null)", cuGraphDestroy(nullptr));
  say("cuGraphExecDestroy(null)", cuGraphExecDestroy(nullptr));
  say("cuGraphLaunch(null)", cuGraphLaunch(nullptr, stream));
  say("cuMemFree(0)", cuMemFree(0));
  say("cuMemFree(unknown)", cuMemFree(4096));
  say("cuMemAlloc(0 bytes)", cuMemAlloc(&gate_address, 0));
  say("cuStreamCreate(bad flags)", cuStreamCreate(&other, 64));
  say("cuEventCreate(bad flags)", cuEventCreate(&fresh, 64));
  say("cuDeviceGet(99)", cuDeviceGet(&value, 99));
  say("cuDeviceGetAttribute(0)",
      cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(0), 0));
  cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
  cuEventCreate(&fresh, 0);
  cuMemHostGetDevicePointer(&gate_address, gate, 0);
}

void memory_operations() {
  const auto unregistered = reinterpret_cast<CUdeviceptr>(gate) + 4096;
  *gate = 0;
  say("wait: misaligned", cuStreamWaitValue64(stream, gate_address + 4, 0, 1));
  say("wait 32: misaligned", cuStreamWaitValue32(stream, gate_address + 2, 0, 1));
  say("wait: flags 8", cuStreamWaitValue64(stream, gate_address, 0, 8));
  say("wait: unregistered memory", cuStreamWaitValue64(stream, unregistered, 0, 1));
  say("wait: null", cuStreamWaitValue64(stream, 0, 0, 1));
  say("wait: FLUSH", cuStreamWaitValue64(stream, gate_address, 0, 1 | CU_STREAM_WAIT_VALUE_FLUSH));
  say("write: no barrier", cuStreamWriteValue64(stream, gate_address, 0, 1));
  say("write: flags 8", cuStreamWriteValue64(stream, gate_address, 0, 8));
  say("batch of 0", cuStreamBatchMemOp(stream, 0, nullptr, 0));
  say("register again", cuMemHostRegister(gate, 4096, 0));
  say("register overlapping", cuMemHostRegister(gate, 8192, 0));
  say("register 0 bytes", cuMemHostRegister(gate + 512, 0, 0));
  say("unregister unknown", cuMemHostUnregister(gate + 512));
  say("synchronise after", cuCtxSynchronize());
}

struct Call {
  const char* name;
  std::function<CUresult()> run;
};

std::vector<Call> calls_to_try() {
  static CUdeviceptr memory = 0;
  static CUdeviceptr to_free = 0;
  static void* host = nullptr;
  static CUstream made_stream = nullptr;
  static CUevent made_event = nullptr;
  static CUmodule made_module = nullptr;
  static CUcontext current = nullptr;
  static char bytes[64];
  static CUgraphExec exec = nullptr;
  static CUgraph graph = nullptr;
  static CUgraphExec made_exec = nullptr;
  static bool ready = false;
  static CUstream end_stream = nullptr;
  static void* page = nullptr;
  if (!ready) {
    cuMemAlloc(&memory, 64);
    cuStreamCreate(&end_stream, CU_STREAM_NON_BLOCKING);
    cuStreamBeginCapture(end_stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    launch(end_stream);
    cuStreamEndCapture(end_stream, &graph);
    cuGraphInstantiate(&exec, graph, 0);
    page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ready = true;
  }
  return {
      {"cuEventQuery(recorded)", [] { return cuEventQuery(recorded); }},
      {"cuEventSynchronize(recorded)", [] { return cuEventSynchronize(recorded); }},
      {"cuEventElapsedTime",
       [] {
         float ms = 0;
         return cuEventElapsedTime(&ms, recorded, recorded);
       }},
      {"cuStreamQuery(this)", [] { return cuStreamQuery(stream); }},
      {"cuStreamQuery(other)", [] { return cuStreamQuery(other); }},
      {"cuStreamQuery(blocking)", [] { return cuStreamQuery(blocking); }},
      {"cuStreamQuery(legacy)", [] { return cuStreamQuery(nullptr); }},
      {"cuStreamSynchronize(this)", [] { return cuStreamSynchronize(stream); }},
      {"cuStreamSynchronize(other)", [] { return cuStreamSynchronize(other); }},
      {"cuStreamSynchronize(legacy)", [] { return cuStreamSynchronize(nullptr); }},
      {"cuCtxSynchronize", [] { return cuCtxSynchronize(); }},
      {"cuCtxGetCurrent", [] { return cuCtxGetCurrent(&current); }},
      {"cuMemAlloc", [] { return cuMemAlloc(&to_free, 64); }},
      {"cuMemFree", [] { return cuMemFree(to_free); }},
      {"cuMemHostAlloc", [] { return cuMemHostAlloc(&host, 64, 0); }},
      {"cuMemFreeHost", [] { return cuMemFreeHost(host); }},
      {"cuMemHostRegister", [] { return cuMemHostRegister(page, 4096, 0); }},
      {"cuMemHostUnregister", [] { return cuMemHostUnregister(page); }},
      {"cuMemHostGetDevicePointer",
       [] { return cuMemHostGetDevicePointer(&gate_address, gate, 0); }},
      {"cuMemcpyHtoD", [] { return cuMemcpyHtoD(memory, bytes, 64); }},
      {"cuMemcpyDtoH", [] { return cuMemcpyDtoH(bytes, memory, 64); }},
      {"cuMemcpyHtoDAsync(other)", [] { return cuMemcpyHtoDAsync(memory, bytes, 64, other); }},
      {"cuMemsetD8", [] { return cuMemsetD8(memory, 0, 64); }},
      {"cuStreamCreate", [] { return cuStreamCreate(&made_stream, CU_STREAM_NON_BLOCKING); }},
      {"cuStreamDestroy", [] { return cuStreamDestroy(made_stream); }},
      {"cuEventCreate", [] { return cuEventCreate(&made_event, 0); }},
      {"cuEventRecord(other)", [] { return cuEventRecord(made_event, other); }},
      {"cuEventRecord(legacy)", [] { return cuEventRecord(made_event, nullptr); }},
      {"cuEventDestroy", [] { return cuEventDestroy(made_event); }},
      {"cuModuleLoadData", [] { return cuModuleLoadData(&made_module, kModule); }},
      {"cuModuleUnload", [] { return cuModuleUnload(made_module); }},
      {"cuLaunchKernel(other)", [] { return launch(other); }},
      {"cuLaunchKernel(blocking)", [] { return launch(blocking); }},
      {"cuLaunchKernel(legacy)", [] { return launch(nullptr); }},
      {"cuGraphInstantiate", [] { return cuGraphInstantiate(&made_exec, graph, 0); }},
      {"cuGraphLaunch(other)", [] { return cuGraphLaunch(made_exec, other); }},
      {"cuGraphExecDestroy", [] { return cuGraphExecDestroy(made_exec); }},
      {"cuStreamGetId(this)",
       [] {
         unsigned long long id = 0;
         return cuStreamGetId(stream, &id);
       }},
      {"cuStreamIsCapturing(this)",
       [] {
         CUstreamCaptureStatus found;
         return cuStreamIsCapturing(stream, &found);
       }},
      {"cuStreamIsCapturing(legacy)",
       [] {
         CUstreamCaptureStatus found;
         return cuStreamIsCapturing(nullptr, &found);
       }},
  };
}

CUstreamCaptureStatus capture_status(CUstream of) {
  CUstreamCaptureStatus found = CU_STREAM_CAPTURE_STATUS_NONE;
  cuStreamIsCapturing(of, &found);
  return found;
}

// Tries every call, each inside a new capture.
void calls_in_captures(const std::string& title, CUstream captured, CUstreamCaptureMode mode,
                       bool relaxed_thread, bool other_thread) {
  for (const Call& call : calls_to_try()) {
    CUgraph graph = nullptr;
    cuStreamBeginCapture(captured, mode);
    CUresult answer = CUDA_SUCCESS;
    const auto run = [&] {
      cuCtxSetCurrent(context);
      CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      if (relaxed_thread) cuThreadExchangeStreamCaptureMode(&thread_mode);
      answer = call.run();
      if (relaxed_thread) cuThreadExchangeStreamCaptureMode(&thread_mode);
    };
    if (other_thread) {
      std::thread(run).join();
    } else {
      run();
    }
    const CUstreamCaptureStatus status = capture_status(captured);
    const CUresult end = cuStreamEndCapture(captured, &graph);
    if (graph != nullptr) cuGraphDestroy(graph);
    std::printf("%s: %s: %d, capture %d, end %d\n", title.c_str(), call.name, answer, status, end);
    std::fflush(stdout);
    cuCtxSynchronize();
  }
}

void capture_rules() {
  CUgraph graph = nullptr;
  CUevent inside = nullptr;
  cuEventCreate(&inside, CU_EVENT_DISABLE_TIMING);
  say("capture: begin on legacy", cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  say("capture: end without begin", cuStreamEndCapture(stream, &graph));
  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  say("capture: begin twice", cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  say("capture: status after begin twice", capture_status(stream));
  CUresult elsewhere = CUDA_SUCCESS;
  std::thread([&] { elsewhere = cuStreamEndCapture(stream, &graph); }).join();
  say("capture: end in another thread", elsewhere);
  say("capture: status after it", capture_status(stream));
  say("capture: wait for an event recorded outside", cuStreamWaitEvent(stream, recorded, 0));
  say("capture: status after it", capture_status(stream));
  say("capture: launch after it", launch(stream));
  say("capture: end after it", cuStreamEndCapture(stream, &graph));

  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  launch(stream);
  say("capture: record", cuEventRecord(inside, stream));
  say("capture: query of the captured event", cuEventQuery(inside));
  say("capture: status after it", capture_status(stream));
  cuStreamEndCapture(stream, &graph);
  say("capture over: query of the captured event", cuEventQuery(inside));
  say("capture over: synchronise with the captured event", cuEventSynchronize(inside));
  say("capture over: wait for the captured event", cuStreamWaitEvent(other, inside, 0));

  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  launch(stream);
  cuEventRecord(inside, stream);
  cuStreamWaitEvent(other, inside, 0);
  say("joined stream: status", capture_status(other));
  launch(other);
  say("joined stream: end on it", cuStreamEndCapture(other, &graph));
  say("joined stream: status after it", capture_status(stream));
  say("joined stream: end", cuStreamEndCapture(stream, &graph));
  say("joined stream: status after the end", capture_status(other));

  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  cuEventRecord(inside, stream);
  cuStreamWaitEvent(other, inside, 0);
  say("joined without work: end", cuStreamEndCapture(stream, &graph));

  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL);
  launch(stream);
  cuEventRecord(inside, stream);
  say("two captures: merge", cuStreamWaitEvent(other, inside, 0));
  say("two captures: status of the first", capture_status(stream));
  say("two captures: status of the second", capture_status(other));
  say("two captures: end of the first", cuStreamEndCapture(stream, &graph));
  say("two captures: end of the second", cuStreamEndCapture(other, &graph));

  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  say("capture: destroy the stream", cuStreamDestroy(stream));
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  cuCtxSynchronize();
}

void graph_rules() {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  *gate = 0;
  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  launch(stream);
  cuStreamWaitValue64(stream, gate_address, 0, CU_STREAM_WAIT_VALUE_EQ);
  CUstreamBatchMemOpParams two[2] = {};
  for (auto& one : two) {
    one.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    one.waitValue.address = gate_address;
    one.waitValue.value64 = 0;
    one.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  }
  say("graph: batch of two in a capture", cuStreamBatchMemOp(stream, 2, two, 0));
  launch(stream);
  say("graph: end", cuStreamEndCapture(stream, &graph));
  std::size_t count = 0;
  cuGraphGetNodes(graph, nullptr, &count);
  say("graph: nodes", static_cast<long>(count));
  std::vector<CUgraphNode> nodes(count);
  cuGraphGetNodes(graph, nodes.data(), &count);
  for (std::size_t i = 0; i < count; ++i) {
    CUgraphNodeType type;
    cuGraphNodeGetType(nodes[i], &type);
    say("graph: type of node " + std::to_string(i), type);
  }
  say("graph: instantiate for device launch",
      cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  parameters.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  say("graph: the same with parameters", cuGraphInstantiateWithParams(&exec, graph, &parameters));
  say("graph: its result", parameters.result_out);
  say("graph: its error node is set", parameters.hErrNode_out != nullptr);
  say("graph: bad flags", cuGraphInstantiate(&exec, graph, 64));
  CUgraph clone = nullptr;
  CUgraphNode in_clone = nullptr;
  say("graph: clone", cuGraphClone(&clone, graph));
  say("graph: find in clone", cuGraphNodeFindInClone(&in_clone, nodes[1], clone));
  CUgraphNode edge_from[8];
  CUgraphNode edge_to[8];
  std::size_t edges = 8;
  say("graph: edges of clone", cuGraphGetEdges(clone, edge_from, edge_to, nullptr, &edges));
  say("graph: their number", static_cast<long>(edges));
  say("graph: destroy node", cuGraphDestroyNode(in_clone));
  say("graph: find the destroyed node", cuGraphNodeFindInClone(&in_clone, nodes[1], clone));
  edges = 8;
  cuGraphGetEdges(clone, edge_from, edge_to, nullptr, &edges);
  say("graph: edges left", static_cast<long>(edges));
  say("graph: instantiate", cuGraphInstantiate(&exec, graph, 0));
  CUgraphExecUpdateResultInfo info{};
  say("graph: update from the clone without a node", cuGraphExecUpdate(exec, clone, &info));
  say("graph: its result", info.result);
  say("graph: update from the same graph", cuGraphExecUpdate(exec, graph, &info));
  say("graph: add an edge that exists",
      cuGraphAddDependencies(graph, &nodes[0], &nodes[1], nullptr, 1));
  say("graph: add an edge to itself",
      cuGraphAddDependencies(graph, &nodes[0], &nodes[0], nullptr, 1));
  say("graph: launch", cuGraphLaunch(exec, stream));
  say("graph: launch on legacy", cuGraphLaunch(exec, nullptr));
  say("graph: destroy exec while queued", cuGraphExecDestroy(exec));
  say("graph: synchronise", cuCtxSynchronize());
  cuGraphDestroy(clone);
  cuGraphDestroy(graph);
}

// Runs the call in a thread and reports whether it returned while the gate was closed.
void watch(const std::string& title, const Call& call) {
  auto done = std::make_shared<std::promise<CUresult>>();
  std::future<CUresult> answer = done->get_future();
  std::thread([run = call.run, done] {
    cuCtxSetCurrent(context);
    done->set_value(run());
  }).detach();
  const bool blocks = answer.wait_for(std::chrono::milliseconds(200)) != std::future_status::ready;
  if (blocks) {
    *static_cast<volatile std::uint64_t*>(gate) = 0;
    answer.wait();
  }
  std::printf("%s: %s: %s, %d\n", title.c_str(), call.name, blocks ? "blocks" : "returns",
              answer.get());
  std::fflush(stdout);
}

void calls_while_parked(const std::string& title, bool queue_full) {
  for (const Call& call : calls_to_try()) {
    *gate = 1;
    cuStreamWaitValue64(stream, gate_address, 0, CU_STREAM_WAIT_VALUE_EQ);
    std::atomic<int> launched = 0;
    std::thread launcher([&] {
      cuCtxSetCurrent(context);
      const int wanted = queue_full ? 4096 : 10;
      for (; launched < wanted; ++launched) launch(stream);
    });
    int before = -1;
    while (launched != before) {
      before = launched;
      std::this_thread::sleep_for(std::chrono::milliseconds(queue_full ? 10 : 3));
    }
    watch(title, call);
    *static_cast<volatile std::uint64_t*>(gate) = 0;
    launcher.join();
    cuCtxSynchronize();
  }
}

void queue_depth(const char* title, const std::function<void()>& submit) {
  *gate = 1;
  cuStreamWaitValue64(stream, gate_address, 0, CU_STREAM_WAIT_VALUE_EQ);
  std::atomic<int> submitted = 0;
  std::atomic<bool> enough = false;
  std::thread thread([&] {
    cuCtxSetCurrent(context);
    for (; submitted < 100'000 && !enough; ++submitted) submit();
  });
  int before = -1;
  while (submitted != before) {
    before = submitted;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  say(std::string("queue depth: ") + title, before);
  enough = true;
  *static_cast<volatile std::uint64_t*>(gate) = 0;
  thread.join();
  cuCtxSynchronize();
}

void queue_depths() {
  queue_depth("kernels", [] { launch(stream); });
  queue_depth("kernels, a wait before each", [] {
    cuStreamWaitValue64(stream, gate_address, 0, CU_STREAM_WAIT_VALUE_EQ);
    launch(stream);
  });
  queue_depth("event records", [] { cuEventRecord(recorded, stream); });
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

}  // namespace

int main() {
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
}
