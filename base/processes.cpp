#include "base/processes.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/fd.hpp"

namespace sluice::base {
namespace {

/// Length of the UTF-8 character at the front of `text`; 0 if the text does not begin with one.
std::size_t character_size(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return 1;
  const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return 0;
  const bool continued = std::all_of(text.begin() + 1, text.begin() + static_cast<long>(size),
                                     [](char c) { return (c & 0xc0) == 0x80; });
  if (!continued) return 0;
  // The second byte decides about overlong forms, surrogates and code points above U+10FFFF.
  const auto second = static_cast<unsigned char>(text[1]);
  const bool invalid = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
                       (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f);
  return invalid ? 0 : size;
}

// The part of NVML that is needed. The CUDA toolkit installs its header with an optional package.
using NvmlDevice = struct nvmlDevice_st*;
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlNotFound = 6;
constexpr int kNvmlInsufficientSize = 7;
constexpr std::uint64_t kNvmlNotAvailable = ~std::uint64_t{0};

/// nvmlProcessInfo_t of the functions with the suffix _v3.
struct NvmlProcess {
  unsigned pid;
  unsigned long long memory_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};
static_assert(sizeof(NvmlProcess) == 24);

/// nvmlProcessUtilizationSample_t: percent of the time between two samples.
struct NvmlSample {
  unsigned pid;
  unsigned long long at_us;
  unsigned multiprocessors;
  unsigned memory;
  unsigned encoder;
  unsigned decoder;
};
static_assert(sizeof(NvmlSample) == 32);

class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    started_ = call<int()>("nvmlInit_v2") == kNvmlSuccess;
  }
  ~Nvml() {
    if (started_) call<int()>("nvmlShutdown");
    if (library_ != nullptr) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  [[nodiscard]] NvmlDevice device(const std::string& uuid) const {
    NvmlDevice found = nullptr;
    if (!started_) return found;
    // NVML writes the UUID of a MIG instance with another prefix.
    for (const std::string& text :
         {uuid, "MIG" + uuid.substr(std::min(uuid.size(), uuid.find('-')))}) {
      if (call<int(const char*, NvmlDevice*)>("nvmlDeviceGetHandleByUUID", text.c_str(), &found) ==
          kNvmlSuccess) {
        return found;
      }
    }
    return nullptr;
  }

  /// Percent of the time; nothing if NVML does not say.
  [[nodiscard]] std::optional<unsigned> utilization(NvmlDevice device) const {
    struct {
      unsigned gpu = 0;
      unsigned memory = 0;
    } used;  // nvmlUtilization_t
    const int result = call<int(NvmlDevice, void*)>("nvmlDeviceGetUtilizationRates", device, &used);
    return result == kNvmlSuccess ? std::optional(used.gpu) : std::nullopt;
  }

  /// The samples after `since_us`; nothing if NVML does not say.
  [[nodiscard]] std::optional<std::vector<NvmlSample>> samples(NvmlDevice device,
                                                               unsigned long long since_us) const {
    std::vector<NvmlSample> found(64);
    for (int attempt = 0; attempt < 3; ++attempt) {  // there may be more at the next call
      auto count = static_cast<unsigned>(found.size());
      const int result = call<int(NvmlDevice, NvmlSample*, unsigned*, unsigned long long)>(
          "nvmlDeviceGetProcessUtilization", device, found.data(), &count, since_us);
      if (result == kNvmlNotFound) return std::vector<NvmlSample>{};
      if (result == kNvmlSuccess) {
        found.resize(std::min<std::size_t>(count, found.size()));
        return found;
      }
      if (result != kNvmlInsufficientSize) break;
      found.resize(std::size_t{count} + 64);
    }
    return std::nullopt;
  }

  /// What one of NVML's lists of processes has for the device.
  [[nodiscard]] std::vector<NvmlProcess> processes(const char* list, NvmlDevice device) const {
    std::vector<NvmlProcess> found(64);
    for (int attempt = 0; attempt < 3; ++attempt) {  // the list may grow between two calls
      auto count = static_cast<unsigned>(found.size());
      const int result =
          call<int(NvmlDevice, unsigned*, NvmlProcess*)>(list, device, &count, found.data());
      if (result == kNvmlSuccess) {
        found.resize(std::min<std::size_t>(count, found.size()));
        return found;
      }
      if (result != kNvmlInsufficientSize) break;
      found.resize(std::size_t{count} + 64);
    }
    return {};
  }

 private:
  /// The result of the function, or -1 if NVML does not have it.
  template <class Function, class... Args>
  int call(const char* name, Args... args) const {
    auto* function =
        library_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library_, name));
    return function == nullptr ? -1 : function(args...);
  }

  void* library_;
  bool started_ = false;
};

}  // namespace

std::string read_proc(pid_t pid, const char* file, std::size_t max_bytes) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + file;
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(max_bytes, '\0');
  const ssize_t size = fd ? read(fd.get(), text.data(), text.size()) : 0;
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

std::string short_name(pid_t pid) {
  std::string name = read_proc(pid, "comm", 64);
  if (!name.empty() && name.back() == '\n') name.pop_back();
  return printable(name, name.size());
}

std::string command_line(pid_t pid, std::size_t max_bytes) {
  constexpr std::size_t kMostPaths = 4096;
  std::string line = read_proc(pid, "cmdline", kMostPaths);
  // Without the folder of the program, more of the arguments fit.
  const std::size_t slash = line.substr(0, line.find('\0')).rfind('/');
  if (slash != std::string::npos) line.erase(0, slash + 1);
  while (!line.empty() && line.back() == '\0') line.pop_back();
  std::replace(line.begin(), line.end(), '\0', ' ');
  return printable(line, max_bytes);
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string result;
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    const auto lead = static_cast<unsigned char>(text.front());
    // Terminals obey U+0080 to U+009F, too.
    const bool control = lead < 0x20 || lead == 0x7f ||
                         (lead == 0xc2 && size == 2 && static_cast<unsigned char>(text[1]) < 0xa0);
    const bool good = size > 0 && !control;
    const std::string_view character = good ? text.substr(0, size) : "?";
    if (result.size() + character.size() > max_bytes) break;
    result += character;
    text.remove_prefix(size > 0 ? size : 1);
  }
  return result;
}

std::vector<GpuProcess> gpu_processes(const std::string& uuid) {
  std::vector<GpuProcess> found;
  const Nvml nvml;
  NvmlDevice device = nvml.device(uuid);
  if (device == nullptr) return found;
  for (const char* list :
       {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3"}) {
    for (const NvmlProcess& process : nvml.processes(list, device)) {
      const auto pid = static_cast<pid_t>(process.pid);
      const bool known = std::any_of(found.begin(), found.end(),
                                     [&](const GpuProcess& other) { return other.pid == pid; });
      if (known || short_name(pid).starts_with("nvidia-cuda-mps")) continue;
      found.push_back({pid, {}});
      if (process.memory_bytes != kNvmlNotAvailable)
        found.back().memory_bytes = process.memory_bytes;
    }
  }
  return found;
}

std::optional<double> gpu_utilization(const std::string& uuid) {
  const Nvml nvml;
  NvmlDevice device = nvml.device(uuid);
  if (device == nullptr) return std::nullopt;
  const auto percent = nvml.utilization(device);
  return percent ? std::optional(std::min(*percent, 100U) / 100.0) : std::nullopt;
}

std::optional<std::map<pid_t, unsigned>> gpu_use(const std::string& uuid, std::uint64_t since_us) {
  const Nvml nvml;
  NvmlDevice device = nvml.device(uuid);
  if (device == nullptr) return std::nullopt;
  const auto samples = nvml.samples(device, since_us);
  if (!samples) return std::nullopt;
  struct Sum {
    unsigned percent = 0;
    unsigned count = 0;
  };
  std::map<pid_t, Sum> sums;
  for (const NvmlSample& sample : *samples) {
    // NVML has filled some places with numbers that are no percentages.
    if (sample.pid == 0 || sample.at_us <= since_us || sample.multiprocessors > 100) continue;
    Sum& sum = sums[static_cast<pid_t>(sample.pid)];
    sum.percent += sample.multiprocessors;
    ++sum.count;
  }
  std::map<pid_t, unsigned> use;
  for (const auto& [pid, sum] : sums) use[pid] = (sum.percent + sum.count - 1) / sum.count;
  return use;
}

bool in_initial_pid_namespace() {
  constexpr std::string_view kInitial = "pid:[4026531836]";  // PROC_PID_INIT_INO of the kernel
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/pid", error) == kInitial;
}

bool has_mapped(pid_t pid, std::string_view part) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(part) != std::string::npos) return true;
  }
  return false;
}

bool is_simulated(const std::array<std::uint8_t, 16>& uuid) {
  return std::equal(kSimulatedUuid.begin(), kSimulatedUuid.end(), uuid.begin());
}

std::vector<GpuProcess> simulated_gpu_processes(const std::string& session) {
  std::vector<GpuProcess> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && has_mapped(pid, "/memfd:" + simulated_gpu_file(session, pid) + " ")) {
      found.push_back({pid, {}});
    }
  }
  return found;
}

}  // namespace sluice::base
