"""cuda.core: a program, the linker, graphs built in a stream."""

import numpy as np
from common import clock, report

try:
    from cuda.core import Device, LaunchConfig, Linker, LinkerOptions, Program, ProgramOptions, launch
except ImportError:
    from cuda.core.experimental import Device, LaunchConfig, Linker, LinkerOptions, Program, ProgramOptions, launch

device = Device(0)
device.set_current()
stream = device.create_stream()
arch = f"sm_{device.arch}"
helper = "__device__ unsigned step(unsigned x, unsigned salt) { return x * 1664525u + salt; }"
main = """
extern __device__ unsigned step(unsigned x, unsigned salt);
extern "C" __global__ void mix(unsigned* data, unsigned n, unsigned salt) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = step(data[i], salt);
}
"""
options = ProgramOptions(arch=arch, relocatable_device_code=True)
parts = [Program(code, code_type="c++", options=options).compile("cubin") for code in (helper, main)]
module = Linker(*parts, options=LinkerOptions(arch=arch)).link("cubin")
mix = module.get_kernel("mix")
buffer = device.allocate(4096 * 4, stream=stream)
config = LaunchConfig(grid=16, block=256)
pointer = int(buffer.handle)
n = np.uint32(4096)
from cuda.bindings import driver  # noqa: E402

assert driver.cuMemsetD32(pointer, 7, 4096)[0] == 0
device.sync()
graphs = 0
graph = None
try:
    builder = device.create_graph_builder()
    builder.begin_building()
    for k in range(40):
        launch(builder, config, mix, pointer, n, np.uint32(k))
    graph = builder.end_building().complete()
except AttributeError as error:  # a version without graphs
    print("no graphs:", error)
begin = clock()
count = 4000
for i in range(count):
    launch(stream, config, mix, pointer, n, np.uint32(i))
    if graph is not None and i % 4 == 0:
        graph.launch(stream)
    if i % 100 == 99:
        stream.sync()
stream.sync()
took = clock() - begin
host = np.zeros(4096, np.uint32)
assert driver.cuMemcpyDtoH(host.ctypes.data, pointer, 4096 * 4)[0] == 0
report(int(host.astype(np.uint64).sum()), count, took)
