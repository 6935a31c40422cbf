#pragma once
#include <array>
#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "intercept/driver/driver.hpp"
#include "intercept/trace/trace_file.hpp"

namespace sluice::intercept {

/// Records what this process launches, where SLUICE_TRACE asks for it. Its thread makes room in the
/// file, and collects times of execution.
class Trace {
 public:
  /// Begins to record into `folder`, or says in one line why not. For the first client of the
  /// process, once.
  static void start(const std::string& folder, std::uint64_t limit,
                    const shm::TraceHeader& header) noexcept;

  /// Around a launch of the calling thread. `function`: null for a graph.
  void before_launch() noexcept;
  void after_launch(Entry entry, CUstream stream, CUfunction function, CUresult result) noexcept;

  /// The calling thread was held since begin_ns, by `gate` if that was it. In front of its next
  /// launch, or behind its last one (a sync point).
  void hold(shm::TraceHold why, std::uint64_t begin_ns, std::uint64_t gate,
            std::uint64_t holder_pid) noexcept;

  /// A job of this process, which counts them from 1.
  void job_begin(std::uint64_t job, shm::TraceJob kind, std::uint64_t at_ns) noexcept;
  /// `began_ns`: kTraceNoJob if gates were closed for nothing.
  void job_end(std::uint64_t job, std::uint64_t closed_ns, std::uint64_t began_ns) noexcept;

  /// An execution on the GPU, told by the collector (see collector.h) from a thread of its own.
  void executed(std::uint64_t begin_ns, std::uint64_t end_ns, std::uint64_t correlation,
                std::uint64_t stream, std::uint64_t node, const char* name) noexcept;

 private:
  /// Kernel names by something that stands for the kernel; never grows.
  struct Names {
    static constexpr std::size_t kSize = 8192;
    std::array<std::atomic<std::uint64_t>, kSize> keys{};
  };

  explicit Trace(TraceFile& file) noexcept : file_(file) {}
  std::uint64_t name_of(CUfunction function) noexcept;
  /// The number of a name, written the first time. `name` gives its text. 0 if there are too many.
  template <class Name>
  std::uint64_t number_of(std::uint64_t key, Name name) noexcept;
  void load_collector() noexcept;
  [[noreturn]] void run() noexcept;

  TraceFile& file_;
  Names names_;
  std::atomic<std::uint64_t> correlations_{0};
  void (*collect_begin_)(std::uint64_t) = nullptr;
  void (*collect_end_)(std::uint64_t) = nullptr;
  void (*collect_flush_)() = nullptr;
};

}  // namespace sluice::intercept
