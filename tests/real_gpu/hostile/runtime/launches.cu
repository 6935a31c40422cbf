// Kinds of launches: by kernels, dependent, cooperative, in clusters, with attributes.
#include <cooperative_groups.h>

#include "runtime.cuh"

namespace cg = cooperative_groups;

#ifdef HOSTILE_DEVICE_LAUNCHES  // not under MPS
static __global__ void child_kernel(unsigned* data, unsigned salt) {
  data[threadIdx.x] = mix_one(data[threadIdx.x], salt);
}
static __global__ void parent_kernel(unsigned* data, unsigned salt) {
  if (threadIdx.x == 0) {
    child_kernel<<<1, 256, 0, cudaStreamTailLaunch>>>(data, salt);
    child_kernel<<<1, 256, 0, cudaStreamTailLaunch>>>(data, salt + 1);
  }
}
#endif
static __global__ void overlapped(unsigned* data, unsigned n, unsigned salt) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  cudaTriggerProgrammaticLaunchCompletion();
  unsigned own = salt;
  for (int k = 0; k < 200; ++k) own = mix_one(own, k);
  cudaGridDependencySynchronize();
  if (i < n) data[i] = mix_one(data[i], own);
}
static __global__ void whole_grid(unsigned* data, unsigned n, unsigned rounds) {
  cg::grid_group grid = cg::this_grid();
  for (unsigned r = 0; r < rounds; ++r) {
    const unsigned* from = data + n * (r % 2);
    unsigned* to = data + n * ((r + 1) % 2);
    for (unsigned i = grid.thread_rank(); i < n; i += grid.size())
      to[i] = mix_one(from[(i + 1) % n], r);
    grid.sync();
  }
}
static __global__ void clustered(unsigned* data, unsigned salt) {
  cg::cluster_group cluster = cg::this_cluster();
  __shared__ unsigned mine;
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) mine = data[blockIdx.x * blockDim.x];
  cluster.sync();
  const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  const unsigned theirs = *cluster.map_shared_rank(&mine, next);
  cluster.sync();
  data[i] = mix_one(data[i], theirs + salt);
}
/// All of the data, with attributes.
static cudaLaunchConfig_t config_of(cudaStream_t s, cudaLaunchAttribute* attributes,
                                    unsigned count) {
  cudaLaunchConfig_t config{};
  config.gridDim = kN / 256;
  config.blockDim = 256;
  config.stream = s;
  config.attrs = attributes;
  config.numAttrs = count;
  return config;
}

#ifdef HOSTILE_DEVICE_LAUNCHES
/// Kernels that launch kernels.
CASE(cdp) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  CU(cudaDeviceSetLimit(cudaLimitDevRuntimePendingLaunchCount, 4096));
  CU(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 32 << 20));
  CU(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 4 << 20));
  parent_kernel<<<1, 32, 0, s>>>(data, 1);
  finish(s);
  const Run run = timed(count_of(args, 40000), finish_of(s), [&](int i) {
    parent_kernel<<<1, 32, 0, s>>>(data, i);
    if (i % 50 == 49) finish(s);
  });
  return report(sum_of(data), run);
}
#endif

/// Programmatic dependent launches: in a stream, and in a graph captured from it.
CASE(pdl) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config = config_of(s, &attribute, 1);
  const auto go = [&](unsigned salt) {
    CU(cudaLaunchKernelEx(&config, overlapped, data, kN, salt));
  };
  go(1);
  finish(s);
  cudaGraphExec_t exec = instantiate(capture(s, cudaStreamCaptureModeGlobal, [&] {
    for (int i = 0; i < 50; ++i) go(i);
  }));
  const int count = count_of(args, 6000);
  const Run run = timed(count, finish_of(s), [&](int i) {
    for (int k = 0; k < 50; ++k) go(i + k);
    CU(cudaGraphLaunch(exec, s));
    if (i % 10 == 9) finish(s);
  });
  return report(sum_of(data), {100.0 * count, run.seconds});
}

/// Cooperative launches that fill the GPU, with grid barriers, and clusters.
CASE(coop) {
  cudaDeviceProp prop;
  CU(cudaGetDeviceProperties(&prop, 0));
  int blocks = 0;
  CU(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, whole_grid, 256, 0));
  unsigned* data = nullptr;
  CU(cudaMalloc(&data, 2 * kN * 4));
  CU(cudaMemset(data, 3, 2 * kN * 4));
  unsigned* other = make_data();
  cudaStream_t s = make_stream(), t = make_stream();
  unsigned n = kN, rounds = 20;
  void* params[] = {&data, &n, &rounds};
  const int grid = blocks * prop.multiProcessorCount;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {4, 1, 1};
  const cudaLaunchConfig_t config = config_of(t, &attribute, 1);
  finish_all();
  const Run run = timed(count_of(args, 20000), finish_all, [&](int i) {
    CU(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(whole_grid), grid, 256, params, 0, s));
    CU(cudaLaunchKernelEx(&config, clustered, other, static_cast<unsigned>(i)));
    if (i % 20 == 19) finish_all();
  });
  return report(sum_of(data, sum_of(other)), run);
}

/// Priorities, memory domains and events of launches.
CASE(attributes) {
  int least = 0, greatest = 0;
  CU(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t low, high;
  CU(cudaStreamCreateWithPriority(&low, cudaStreamNonBlocking, least));
  CU(cudaStreamCreateWithPriority(&high, cudaStreamNonBlocking, greatest));
  unsigned* data = make_data();
  unsigned* other = make_data();
  cudaEvent_t begun = make_event();
  finish_all();
  const Run run = timed(count_of(args, 120000), finish_all, [&](int i) {
    cudaLaunchAttribute attribute[3];
    attribute[0].id = cudaLaunchAttributePriority;
    attribute[0].val.priority = i % 2 ? greatest : least;
    attribute[1].id = cudaLaunchAttributeMemSyncDomain;
    attribute[1].val.memSyncDomain =
        i % 2 ? cudaLaunchMemSyncDomainRemote : cudaLaunchMemSyncDomainDefault;
    attribute[2].id = cudaLaunchAttributeLaunchCompletionEvent;
    attribute[2].val.launchCompletionEvent.event = begun;
    attribute[2].val.launchCompletionEvent.flags = 0;
    const cudaLaunchConfig_t config = config_of(low, attribute, 3);
    CU(cudaLaunchKernelEx(&config, mix, data, kN, static_cast<unsigned>(i), 4u));
    CU(cudaStreamWaitEvent(high, begun, 0));
    launch(high, other, i);
    if (i % 50 == 49) finish_all();
  });
  return report(sum_of(data, sum_of(other)), run);
}
