#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/kernel_collector.h"
#include "intercept/driver/driver.hpp"
#include "intercept/trace/trace_file.hpp"

namespace sluice::intercept {

/// Fills a text field of a trace header, cut to its size and NUL-terminated.
template <std::size_t kSize>
void put_text(std::array<char, kSize>& field, std::string_view text) noexcept {
  field.fill('\0');
  text.copy(field.data(), field.size() - 1);
}

/// Records the launches of this process if SLUICE_TRACE is set. Its thread extends the file and
/// collects times of execution.
class Trace {
 public:
  /// Begins to record into `folder`, or reports in one line why it cannot. Called once, for the
  /// first client of the process. Throws std::bad_alloc.
  static void start(const std::string& folder, std::uint64_t limit, const shm::TraceHeader& header);

  /// Bracket a launch of the calling thread. `function` is null for a graph.
  void before_launch() noexcept;
  void after_launch(Entry entry, CUstream stream, CUfunction function, CUresult result) noexcept;

  /// Records that the calling thread was held since begin_ns: in front of its next launch, or after
  /// its last one (a sync point). `gate` is 0 if no gate held it.
  void hold(shm::TraceHold why, std::uint64_t begin_ns, std::uint64_t gate,
            std::uint64_t holder_pid) noexcept;

  /// Records a job of this process; jobs count from 1.
  void job_begin(std::uint64_t job, shm::TraceJob kind, std::uint64_t at_ns) noexcept;
  /// `closed_ns` is 0 if the gates never closed. `began_ns` is kTraceNoJob if the gates were closed
  /// and no job came.
  void job_end(std::uint64_t job, std::uint64_t closed_ns, std::uint64_t began_ns) noexcept;

  /// Records a step of this process; `kind` tells its kind from others.
  void step(std::uint64_t began_ns, std::uint64_t ended_ns, std::uint64_t kind) noexcept;
  /// Records that the gates were open in the middle of a job.
  void window(std::uint64_t job, std::uint64_t opened_ns, std::uint64_t closed_ns) noexcept;

  /// Records an execution on the GPU; called by a thread of the collector.
  void executed(const SluiceKernel& kernel) noexcept;

 private:
  /// The numbers of kernel names, by a key for the kernel. A fixed size.
  struct Names {
    static constexpr std::size_t kSize = 8192;
    std::array<std::atomic<std::uint64_t>, kSize> keys{};
  };

  explicit Trace(TraceFile& file) noexcept : file_(file) {}
  std::uint64_t name_of(CUfunction function) noexcept;
  /// The number of a name. Writes the name the first time; `name` returns its text. 0 if there are
  /// too many names.
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
