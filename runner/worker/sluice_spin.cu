// The kernel of sluice_spin.ptx in CUDA C++, to read and to check it against. The .ptx is what is
// built into the program, so that the build needs no CUDA compiler. It is what
//   nvcc -ptx -arch=compute_75 sluice_spin.cu -o sluice_spin.ptx      (nvcc 13.0)
// makes, with the version lowered to PTX 6.0 for sm_70, so that any driver since CUDA 9 takes it,
// and with the clock read first. After a change:
//   ptxas -arch=sm_90 -o /dev/null sluice_spin.ptx

// Keeps its blocks busy for duration_ns. cycles_per_us: speed of the GPU's clock, measured by the
// caller. The simulated GPU runs no code: it takes the first argument as the kernel's length.
extern "C" __global__ void sluice_spin(unsigned long long duration_ns,
                                       unsigned long long cycles_per_us) {
  const long long start = clock64();
  const long long cycles = static_cast<long long>(duration_ns * cycles_per_us / 1000);
  while (clock64() - start < cycles) {
  }
}
