// The kernel of sluice_spin.ptx in CUDA C++, for readers. The program contains the .ptx file, so
// that the build needs no CUDA compiler. The .ptx file is the output of
//   nvcc -ptx -arch=compute_75 sluice_spin.cu -o sluice_spin.ptx      (nvcc 13.0)
// with two changes: the version is lowered to PTX 6.0 for sm_70, which every driver since CUDA 9
// accepts, and the clock is read first. After a change, check the .ptx file with
//   ptxas -arch=sm_90 -o /dev/null sluice_spin.ptx

// Keeps its blocks busy for a number of cycles of the GPU's clock. The simulated GPU runs no code
// and takes the first argument as the kernel's duration. A module contains one copy for each
// function of a recording, and all are compiled at load. So keep the kernel short: a 64-bit
// division here tripled the load time.
extern "C" __global__ void sluice_spin(unsigned long long /*duration_ns*/, long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}
