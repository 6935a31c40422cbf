#include "intercept/trace/trace.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "base/futex.hpp"
#include "base/kernel_collector.h"
#include "intercept/driver/dlsym.hpp"
#include "intercept/driver/log.hpp"
#include "intercept/driver/process.hpp"
#include "intercept/driver/threads.hpp"

namespace sluice::intercept {

namespace {

using shm::TraceKind;

constexpr std::uint64_t kTendNs = 50'000'000;
constexpr std::uint64_t kClockNs = 1'000'000'000;

/// The number of this thread's next launch, if a hold in front of it was recorded already, and of
/// its last launch.
constinit thread_local std::uint64_t t_next_launch = 0;
constinit thread_local std::uint64_t t_last_launch = 0;
constinit thread_local std::uint64_t t_launch_began_ns = 0;

void executed(const SluiceKernel* kernel) {
  if (Trace* trace = g_process.trace.load()) trace->executed(*kernel);
}

/// The collector is in the folder of this library.
std::string collector_path() noexcept {
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&executed), &self) == 0) return {};
  const std::string_view path(self.dli_fname);
  return std::string(path.substr(0, path.rfind('/') + 1)) + "libsluice_cupti.so";
}

}  // namespace

void Trace::start(const std::string& folder, std::uint64_t limit, const shm::TraceHeader& header) {
  const std::string path = folder + "/" + std::to_string(getpid()) + ".sltrace";
  TraceFile* file = TraceFile::create(path, header, limit);
  if (file == nullptr) {
    Line(Level::kWarn) << "no trace: " << path << ": " << std::strerror(errno);
    return;
  }
  // Never destroyed, like the file.
  Trace* trace = std::unique_ptr<Trace>(new Trace(*file)).release();
  if (file->header().simulated == 0) trace->load_collector();
  if (!start_quiet_thread("sluice-trace", [trace] { trace->run(); })) {
    Line(Level::kWarn) << "no trace: this process has no thread left for it";
    return;
  }
  g_process.trace.store(trace, std::memory_order_release);
  g_process.forget_remembered();
}

void Trace::load_collector() noexcept {
  void* library = dlopen(collector_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* why = "built without CUPTI";
  if (library != nullptr) {
    const auto find = [library](auto& pointer, const char* name) {
      pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(real_dlsym(library, name));
    };
    decltype(&sluice_collector_start) start_collecting = nullptr;
    find(start_collecting, "sluice_collector_start");
    why = start_collecting == nullptr ? "the collector is of another version"
                                      : start_collecting(&intercept::executed);
    if (why == nullptr) {
      find(collect_begin_, "sluice_collector_begin");
      find(collect_end_, "sluice_collector_end");
      find(collect_flush_, "sluice_collector_flush");
      file_.header().exec_source = static_cast<std::uint32_t>(shm::ExecSource::kCupti);
      return;
    }
  }
  put_text(file_.header().note, why);
  Line(Level::kWarn) << "the trace will lack the times of execution on the GPU: " << why;
}

void Trace::before_launch() noexcept {
  t_last_launch = t_next_launch != 0 ? t_next_launch : correlations_.fetch_add(1) + 1;
  t_next_launch = 0;
  if (collect_begin_ != nullptr) collect_begin_(t_last_launch);
  t_launch_began_ns = base::monotonic_ns();
}

void Trace::after_launch(Entry entry, CUstream stream, CUfunction function,
                         CUresult result) noexcept {
  shm::TraceRecord record{};
  record.end_ns = base::monotonic_ns();
  record.begin_ns = t_launch_began_ns;
  unsigned long long id = 0;
  driver().cuStreamGetId(stream, &id);
  record.flags = static_cast<std::uint16_t>(entry);
  record.thread = static_cast<std::uint32_t>(thread_id());
  record.correlation = t_last_launch;
  record.stream = id;
  if (collect_end_ != nullptr) collect_end_(id);
  record.a = function == nullptr ? 1 : 0;
  record.b = static_cast<std::uint64_t>(result);
  record.name = function == nullptr ? 0 : name_of(function);
  file_.write(TraceKind::kLaunch, record);
}

template <class Name>
std::uint64_t Trace::number_of(std::uint64_t key, Name name) noexcept {
  constexpr std::uint64_t kSpread = 0x9e37'79b9'7f4a'7c15;
  const std::uint64_t first = (key * kSpread) >> 32U;
  constexpr std::size_t kTries = 64;
  for (std::size_t i = 0; i < kTries; ++i) {
    const std::size_t place = (first + i) % Names::kSize;
    std::uint64_t found = names_.keys[place].load(std::memory_order_relaxed);
    if (found == 0 && names_.keys[place].compare_exchange_strong(found, key)) {
      file_.write_name(place + 1, name());
      return place + 1;
    }
    if (found == key) return place + 1;
  }
  return 0;
}

std::uint64_t Trace::name_of(CUfunction function) noexcept {
  return number_of(reinterpret_cast<std::uintptr_t>(function),
                   [function] { return kernel_name(function); });
}

void Trace::hold(shm::TraceHold why, std::uint64_t begin_ns, std::uint64_t gate,
                 std::uint64_t holder_pid) noexcept {
  shm::TraceRecord record{};
  if (why == shm::TraceHold::kSyncPoint) {
    record.correlation = t_last_launch;
  } else {
    if (t_next_launch == 0) t_next_launch = correlations_.fetch_add(1) + 1;
    record.correlation = t_next_launch;
  }
  record.flags = static_cast<std::uint16_t>(why);
  record.thread = static_cast<std::uint32_t>(thread_id());
  record.begin_ns = begin_ns;
  record.end_ns = base::monotonic_ns();
  record.a = gate;
  record.b = holder_pid;
  file_.write(TraceKind::kHold, record);
}

void Trace::job_begin(std::uint64_t job, shm::TraceJob kind, std::uint64_t at_ns) noexcept {
  shm::TraceRecord record{};
  record.flags = static_cast<std::uint16_t>(kind);
  record.thread = static_cast<std::uint32_t>(thread_id());
  record.begin_ns = record.end_ns = at_ns;
  record.correlation = job;
  file_.write(TraceKind::kJobBegin, record);
}

void Trace::job_end(std::uint64_t job, std::uint64_t closed_ns, std::uint64_t began_ns) noexcept {
  shm::TraceRecord record{};
  record.thread = static_cast<std::uint32_t>(thread_id());
  record.end_ns = base::monotonic_ns();
  record.begin_ns = closed_ns != 0 ? closed_ns : record.end_ns;
  record.correlation = job;
  record.a = began_ns;
  file_.write(TraceKind::kJobEnd, record);
}

void Trace::window(std::uint64_t job, std::uint64_t opened_ns, std::uint64_t closed_ns) noexcept {
  shm::TraceRecord record{};
  record.thread = static_cast<std::uint32_t>(thread_id());
  record.begin_ns = opened_ns;
  record.end_ns = closed_ns;
  record.correlation = job;
  file_.write(TraceKind::kWindow, record);
}

void Trace::step(std::uint64_t began_ns, std::uint64_t ended_ns, std::uint64_t kind) noexcept {
  shm::TraceRecord record{};
  record.thread = static_cast<std::uint32_t>(thread_id());
  record.begin_ns = began_ns;
  record.end_ns = ended_ns;
  record.a = kind;
  file_.write(TraceKind::kStep, record);
}

void Trace::executed(const SluiceKernel& kernel) noexcept {
  shm::TraceRecord record{};
  record.begin_ns = kernel.begin_ns;
  record.end_ns = kernel.end_ns;
  record.correlation = kernel.correlation;
  record.stream = kernel.stream;
  record.a = kernel.node;
  if (const char* const name = kernel.name; name != nullptr) {
    // CUPTI may move a name, so a hash of its text is the key. Bit 63 distinguishes it from
    // addresses.
    constexpr std::uint64_t kText = std::uint64_t{1} << 63U;
    record.name = number_of(std::hash<std::string_view>{}(name) | kText, [name] { return name; });
  }
  file_.write(TraceKind::kExec, record);
}

void Trace::run() noexcept {
  const std::atomic<std::uint32_t> never{0};
  std::uint64_t next_clock_ns = 0;
  const char* told = nullptr;
  while (!g_process.leaving.load()) {
    file_.tend();
    if (const char* full = file_.full(); full != nullptr && told == nullptr) {
      told = full;
      put_text(file_.header().note, full);
      Line(Level::kWarn) << "the trace ends here: " << full;
    }
    const std::uint64_t now = base::monotonic_ns();
    if (now >= next_clock_ns) {
      next_clock_ns = now + kClockNs;
      shm::TraceRecord record{};
      record.begin_ns = base::monotonic_ns();
      record.end_ns = base::clock_ns(CLOCK_REALTIME);
      file_.write(TraceKind::kClock, record);
    }
    if (collect_flush_ != nullptr) collect_flush_();
    base::futex_wait(never, 0, kTendNs);
  }
  for (;;) base::futex_wait(never, 0, kClockNs);
}

}  // namespace sluice::intercept
