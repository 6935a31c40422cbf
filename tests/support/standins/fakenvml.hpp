#pragma once
#include <optional>
#include <string>
#include <vector>

/// How a test drives the libnvidia-ml.so.1 that stands in for NVIDIA's.
struct FakeNvml {
  struct Process {
    unsigned pid;
    unsigned long long memory_bytes;
    unsigned gpu_instance = 0;
    unsigned compute_instance = 0;
  };
  struct Utilization {
    unsigned gpu;
    unsigned memory;
  };
  /// nvmlProcessUtilizationSample_t
  struct Sample {
    unsigned pid;
    unsigned long long at_us;
    unsigned multiprocessors;
    unsigned memory = 0;
    unsigned encoder = 0;
    unsigned decoder = 0;
  };
  std::string uuid;  ///< Of the only device.
  std::vector<Process> compute;
  std::vector<Process> mps;
  std::optional<Utilization> utilization;      ///< Nothing: not supported, as on a MIG instance.
  std::optional<std::vector<Sample>> samples;  ///< Nothing: not supported, likewise.
  int open = 0;                                ///< Calls of nvmlInit_v2 without their nvmlShutdown.
};

extern "C" FakeNvml* fake_nvml();
