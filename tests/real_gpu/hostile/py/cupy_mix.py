"""CuPy: streams, both memory pools, a raw module, FFT and matrix products in several streams, a captured graph."""

import cupy as cp
from common import clock, report

module = cp.RawModule(
    code=r"""extern "C" __global__ void mix(unsigned* data, unsigned n, unsigned salt) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = data[i] * 1664525u + salt;
}"""
)
mix = module.get_function("mix")
streams = [cp.cuda.Stream(non_blocking=True) for _ in range(4)]
data = [cp.full(4096, 7, cp.uint32) for _ in streams]
a = cp.ones((512, 512), cp.float32) * 0.5
cp.cuda.Device().synchronize()
total = 0.0
begin = clock()
count = 0
for pool in ("default", "async"):
    if pool == "async":
        cp.cuda.set_allocator(cp.cuda.MemoryAsyncPool().malloc)
    for i in range(300):
        results = []
        for stream, array in zip(streams, data):
            with stream:
                mix((16,), (256,), (array, cp.uint32(4096), cp.uint32(i)))
                product = a @ a
                spectrum = cp.fft.fft(product[0])
                results.append((product[0, 0] + spectrum[0].real, stream))
        for value, stream in results:
            stream.synchronize()
            total += float(value)
        count += 1
    cp.get_default_memory_pool().free_all_blocks()
cp.cuda.set_allocator(cp.get_default_memory_pool().malloc)
stream = streams[0]
with stream:
    stream.begin_capture()
    for k in range(30):
        mix((16,), (256,), (data[0], cp.uint32(4096), cp.uint32(k)))
    graph = stream.end_capture()
for _ in range(500):
    graph.launch(stream)
stream.synchronize()
took = clock() - begin
report(([int(d.astype(cp.uint64).sum()) for d in data], f"{total:.0f}"), count, took)
