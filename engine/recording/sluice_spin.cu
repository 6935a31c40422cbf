// The kernel of sluice_spin.ptx in CUDA C++, to read and to check it against. The .ptx is what is
// built into the program, so that the build needs no CUDA compiler. It is what
//   nvcc -ptx -arch=compute_75 sluice_spin.cu -o sluice_spin.ptx      (nvcc 13.0)
// makes, with the version lowered to PTX 6.0 for sm_70, so that any driver since CUDA 9 takes it,
// and with the clock read first. After a change:
//   ptxas -arch=sm_90 -o /dev/null sluice_spin.ptx

// Keeps its blocks busy for so many cycles of the GPU's clock. The simulated GPU runs no code: it
// takes the first argument as the kernel's length. A module holds one copy for each kernel of a
// trace, all compiled at load: keep it short (a 64-bit division here tripled that time).
extern "C" __global__ void sluice_spin(unsigned long long /*duration_ns*/, long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}
