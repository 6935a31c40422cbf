// Contexts: pushed and popped, several of them, primary ones that end, parts of the GPU.
#include "driver.hpp"

/// A context is pushed and popped around each launch into the default stream.
CASE(pushpop) {
  Primary gpu;
  Kernel mix;
  const CUdeviceptr data = make_data();
  mix(nullptr, data, 1);
  finish_all();
  CUcontext popped;
  CU(cuCtxPopCurrent(&popped));
  const Run run = timed(count_of(args, 200000), [&](int i) {
    CU(cuCtxPushCurrent(gpu.context));
    mix(nullptr, data, i);
    if (i % 500 == 499) finish(nullptr);
    CU(cuCtxPopCurrent(&popped));
  });
  CU(cuCtxSetCurrent(gpu.context));
  return report(sum_of(data), run);
}

struct Part {
  CUcontext context;
  Kernel mix;
  CUstream stream;
  CUdeviceptr data;
  CUgreenCtx green = nullptr;
};
static Part make_context(CUdevice device) {
  CUcontext context;
#if CUDA_VERSION >= 13000
  CU(cuCtxCreate(&context, nullptr, 0, device));
#else
  CU(cuCtxCreate(&context, 0, device));
#endif
  return {context, Kernel(), make_stream(), make_data()};
}
static Part make_green(CUdevice device, CUdevResource& group) {
  CUdevResourceDesc desc;
  CUgreenCtx green;
  CUcontext context;
  CUstream stream;
  CU(cuDevResourceGenerateDesc(&desc, &group, 1));
  CU(cuGreenCtxCreate(&green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM));
  CU(cuCtxFromGreenCtx(&context, green));
  CU(cuCtxSetCurrent(context));
  CU(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  return {context, Kernel(), stream, make_data(), green};
}

/// Six contexts, none of them primary; work goes round; two of them end and are made again.
CASE(contexts) {
  CU(cuInit(0));
  CUdevice device;
  CU(cuDeviceGet(&device, 0));
  std::vector<Part> all;
  for (int i = 0; i < 6; ++i) all.push_back(make_context(device));
  std::uint64_t sum = 1;
  const Run run = timed(4, [&](int) {
    for (int i = 0; i < 2000; ++i) {
      const Part& one = all[i % all.size()];
      CU(cuCtxSetCurrent(one.context));
      one.mix(i % 3 == 0 ? nullptr : one.stream, one.data, i);
      if (i % 3 == 0) finish(nullptr);
      if (i % 97 == 0) finish_all();
    }
    for (const Part& one : all) {
      CU(cuCtxSetCurrent(one.context));
      finish_all();
      sum = sum_of(one.data, sum);
    }
    for (int i = 0; i < 2; ++i) {  // the first one is where the board may be registered
      CU(cuCtxDestroy(all[i].context));
      all[i] = make_context(device);
    }
  });
  return report(sum, {4 * 2000, run.seconds});
}

/// The primary context is released, so that it ends, and retained again.
CASE(primary) {
  CU(cuInit(0));
  std::uint64_t sum = 1;
  const Run run = timed(6, [&](int) {
    Primary gpu;
    Kernel mix;
    CUstream s = make_stream();
    const CUdeviceptr data = make_data();
    CUcontext again;
    CU(cuDevicePrimaryCtxRetain(&again, gpu.device));  // a second reference, given up early
    for (int i = 0; i < 3000; ++i) {
      CUstream stream = i % 2 ? s : nullptr;
      mix(stream, data, i);
      finish(stream);
      if (i == 1000) CU(cuDevicePrimaryCtxRelease(gpu.device));
    }
    sum = sum_of(data, sum);
    CU(cuDevicePrimaryCtxRelease(gpu.device));
    CU(cuCtxSetCurrent(nullptr));
  });
  return report(sum, {6 * 3000, run.seconds});
}

/// Green contexts: two halves of the GPU, with streams of their own; they end and are made again.
CASE(green) {
  Primary gpu;
  CUdevResource all{};
  CU(cuDeviceGetDevResource(gpu.device, &all, CU_DEV_RESOURCE_TYPE_SM));
  std::uint64_t sum = 1;
  const int rounds = count_of(args, 36);
  const Run run = timed(rounds, [&](int) {
    CUdevResource groups[2]{}, rest{};
    unsigned count = 2;
    CU(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 32));
    const Part parts[] = {make_green(gpu.device, groups[0]), make_green(gpu.device, groups[1])};
    for (int i = 0; i < 6000; ++i) {
      const Part& part = parts[i % 2];
      CU(cuCtxSetCurrent(part.context));
      part.mix(part.stream, part.data, i);
      if (i % 50 > 47) finish(part.stream);
    }
    for (const Part& part : parts) {
      CU(cuCtxSetCurrent(part.context));
      finish_all();
      sum = sum_of(part.data, sum);
      CU(cuMemFree(part.data));
      CU(cuStreamDestroy(part.stream));
      CU(cuCtxSetCurrent(gpu.context));
      CU(cuGreenCtxDestroy(part.green));
    }
  });
  return report(sum, {rounds * 6000.0, run.seconds});
}
