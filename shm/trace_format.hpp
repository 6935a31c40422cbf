#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

/// The file that a traced client writes: a header, then records of one size. Read by
/// tools/python/sluice_tools/trace/reader.py; described for users in docs/tracing.md.
namespace sluice::shm {

inline constexpr std::array<char, 8> kTraceMagic{'S', 'L', 'T', 'R', 'A', 'C', 'E', '1'};
inline constexpr std::uint32_t kTraceVersion = 1;
inline constexpr std::size_t kTraceHeaderSize = 4096;

/// Where the times of execution on the GPU come from.
enum class ExecSource : std::uint32_t {
  kNone,
  kCupti,      ///< kExec records of this file.
  kSimulator,  ///< The lines of gpu.log in the same folder.
};

struct TraceHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t record_size;
  std::uint32_t pid;
  std::uint32_t priority;
  std::uint32_t simulated;  ///< 1 on the simulated GPU.
  std::uint32_t exec_source;
  double time_scale;  ///< Real time per time of the GPU: divide by it.
  std::uint64_t begin_monotonic_ns;
  std::uint64_t begin_realtime_ns;
  std::uint64_t lost;  ///< Records for which there was no room.
  std::array<char, 64> policy;
  std::array<char, 256> command;
  std::array<char, 128> note;                ///< Why there is no time of execution, for instance.
  std::array<std::uint8_t, 16> device_uuid;  ///< Of the first device that the process used.
};
static_assert(sizeof(TraceHeader) == 528 && offsetof(TraceHeader, policy) == 64 &&
              offsetof(TraceHeader, device_uuid) == 512);

enum class TraceKind : std::uint16_t {
  kNothing,  ///< Not written: the process died in the middle, or the end of the file.
  kLaunch,   ///< The driver's call on the host. flags: Entry; a: 1 for a graph; b: CUresult.
  kExec,     ///< On the GPU. a: node of the graph that was launched, or 0.
  kName,     ///< A piece of a kernel's name: see TraceName.
  kHold,     ///< A launching thread was held. flags: TraceHold; a: the gate; b: pid of a holder.
  kJobBegin = 6,  ///< Gates close. correlation: the client's job, from 1. flags: TraceJob.
  kJobEnd,        ///< begin: of that record. a: when the program began the job, later than the
                  ///< closing of the gates where it was announced or predicted; or kTraceNoJob.
  kClock,         ///< begin: CLOCK_MONOTONIC; end: CLOCK_REALTIME at that moment.
};

enum class TraceHold : std::uint16_t { kGate = 1, kEventGroup, kSyncPoint };
enum class TraceJob : std::uint16_t { kExplicit = 1, kTransparent };

/// The job that gates were closed for did not come.
inline constexpr std::uint64_t kTraceNoJob = ~std::uint64_t{0};

/// Times: CLOCK_MONOTONIC ns. `kind` is written last.
struct TraceRecord {
  std::atomic<std::uint16_t> kind;
  std::uint16_t flags;
  std::uint32_t thread;
  std::uint64_t begin_ns;
  std::uint64_t end_ns;
  std::uint64_t correlation;  ///< Number of the launch in its process, from 1.
  std::uint64_t stream;       ///< The driver's id, never used twice.
  std::uint64_t a;
  std::uint64_t b;
  std::uint64_t name;  ///< Of the kernel; 0: not known.
};

/// A record of kName. Piece `part` of `length` bytes in pieces of kTraceNamePiece.
struct TraceName {
  std::atomic<std::uint16_t> kind;
  std::uint16_t part;
  std::uint32_t thread;
  std::array<char, 16> text;
  std::uint64_t length;
  std::array<char, 24> text_goes_on;
  std::uint64_t name;
};
inline constexpr std::size_t kTraceNamePiece = 40;
static_assert(sizeof(TraceRecord) == 64 && sizeof(TraceName) == 64);
static_assert(offsetof(TraceRecord, begin_ns) == 8 && offsetof(TraceRecord, correlation) == 24 &&
              offsetof(TraceRecord, a) == 40 && offsetof(TraceRecord, name) == 56);
static_assert(offsetof(TraceName, length) == 24 && offsetof(TraceName, text_goes_on) == 32 &&
              offsetof(TraceName, name) == 56);

}  // namespace sluice::shm
