#pragma once
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What the kernel says about a process, and who uses a GPU, with Sluice or without it.
namespace sluice::base {

/// At most `max_bytes` of /proc/PID/`file`; empty if it cannot be read.
[[nodiscard]] std::string read_proc(pid_t pid, const char* file, std::size_t max_bytes);

/// Name of the process (/proc/PID/comm). Never blocks.
[[nodiscard]] std::string short_name(pid_t pid);

/// Command line with spaces between the arguments, at most `max_bytes`. May block: the kernel takes
/// the address-space lock of the process, which a fork holds, for instance.
[[nodiscard]] std::string command_line(pid_t pid, std::size_t max_bytes);

/// `text` for a log or a label: valid UTF-8 of at most `max_bytes`, control characters replaced.
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_bytes);

/// A device's UUID in the form of nvidia-smi: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx.
inline std::string format_uuid(const std::array<std::uint8_t, 16>& bytes) {
  constexpr std::array<char, 17> kDigits{"0123456789abcdef"};
  std::string text = "GPU-";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[bytes[i] >> 4U];
    text += kDigits[bytes[i] & 0xfU];
  }
  return text;
}

struct GpuProcess {
  pid_t pid = 0;  ///< As the driver reports it: see in_initial_pid_namespace().
  std::optional<std::uint64_t> memory_bytes;  ///< GPU memory, where the driver says so.
};

/// The processes that have a context on the GPU or MIG instance with this UUID (as format_uuid()
/// writes it), from NVML. The MPS server is left out. Empty if there is no NVML or no such GPU.
[[nodiscard]] std::vector<GpuProcess> gpu_processes(const std::string& uuid);

/// The part of the last second or less in which the GPU with this UUID ran a kernel, 0 to 1, from
/// NVML. Nothing if there is no NVML or no such GPU, or for a MIG instance.
[[nodiscard]] std::optional<double> gpu_utilization(const std::string& uuid);

/// How much of the GPU each process used since `since_us` (CLOCK_REALTIME), in percent, rounded up,
/// from NVML. A process that is missing used nothing. Nothing if NVML cannot tell, as on a MIG
/// instance.
[[nodiscard]] std::optional<std::map<pid_t, unsigned>> gpu_use(const std::string& uuid,
                                                               std::uint64_t since_us);

/// Outside the initial pid namespace, as in a container, an older driver reports pids that mean
/// nothing here.
[[nodiscard]] bool in_initial_pid_namespace();

/// Whether the process has mapped a file whose path contains `part`. False if that is not known.
[[nodiscard]] bool has_mapped(pid_t pid, std::string_view part);

/// The first bytes of the UUID of every simulated GPU.
inline constexpr std::string_view kSimulatedUuid = "Sluice simulate";
[[nodiscard]] bool is_simulated(const std::array<std::uint8_t, 16>& uuid);

/// The processes that use the simulated GPU of the session.
[[nodiscard]] std::vector<GpuProcess> simulated_gpu_processes(const std::string& session);

/// The name of the shared file by which simulated_gpu_processes() finds a process. It has the pid
/// of the process, so that a forked child is not taken for a process with a connection of its own.
[[nodiscard]] inline std::string simulated_gpu_file(const std::string& session, pid_t pid) {
  return "sluice-simgpu." + session + "." + std::to_string(pid);
}

}  // namespace sluice::base
