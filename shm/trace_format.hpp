#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

/// The file that a traced client writes: a header page, then records of one size. The page contains
/// the fields of header and records as text (kTraceSchema), so that readers need no field list of
/// their own. tools/python/sluice_tools/trace/reader.py reads the file;
/// docs/reference/trace-files.md describes it for users.
namespace sluice::shm {

inline constexpr std::array<char, 8> kTraceMagic{'S', 'L', 'T', 'R', 'A', 'C', 'E', '2'};
inline constexpr std::uint32_t kTraceVersion = 2;
inline constexpr std::size_t kTraceHeaderSize = 4096;
inline constexpr std::size_t kTraceSchemaOffset = 1024;

/// The source of the execution times on the GPU.
enum class ExecSource : std::uint32_t {
  kNone,
  kCupti,      ///< The kExec records of this file.
  kSimulator,  ///< gpu.log in the same folder.
};

/// FIELD(type, numpy type, name), in the order of the file:
/// - simulated: 1 on the simulated GPU
/// - exec_source: ExecSource
/// - time_scale: real time per GPU time; divide a time by it
/// - lost: records that did not fit into the file
/// - note: a remark for the reader, such as why execution times are missing
/// - device_uuid: the first device that the process used
/// - name: the process's name for users
#define SLUICE_TRACE_HEADER(FIELD)                              \
  FIELD(SLUICE_TRACE_ARRAY(char, 8), S8, magic)                 \
  FIELD(std::uint32_t, u4, version)                             \
  FIELD(std::uint32_t, u4, record_size)                         \
  FIELD(std::uint32_t, u4, pid)                                 \
  FIELD(std::uint32_t, u4, priority)                            \
  FIELD(std::uint32_t, u4, simulated)                           \
  FIELD(std::uint32_t, u4, exec_source)                         \
  FIELD(double, f8, time_scale)                                 \
  FIELD(std::uint64_t, u8, begin_monotonic_ns)                  \
  FIELD(std::uint64_t, u8, begin_realtime_ns)                   \
  FIELD(std::uint64_t, u8, lost)                                \
  FIELD(SLUICE_TRACE_ARRAY(char, 64), S64, policy)              \
  FIELD(SLUICE_TRACE_ARRAY(char, 256), S256, command)           \
  FIELD(SLUICE_TRACE_ARRAY(char, 128), S128, note)              \
  FIELD(SLUICE_TRACE_ARRAY(std::uint8_t, 16), V16, device_uuid) \
  FIELD(SLUICE_TRACE_ARRAY(char, 64), S64, name)

/// The fields of a record. Times are CLOCK_MONOTONIC ns. `kind` is written last.
/// - correlation: number of the launch in its process, from 1
/// - stream: the driver's stream id, which is never reused
/// - name: id of the kernel's name; 0: unknown
#define SLUICE_TRACE_RECORD(FIELD)            \
  FIELD(std::atomic<std::uint16_t>, u2, kind) \
  FIELD(std::uint16_t, u2, flags)             \
  FIELD(std::uint32_t, u4, thread)            \
  FIELD(std::uint64_t, i8, begin_ns)          \
  FIELD(std::uint64_t, i8, end_ns)            \
  FIELD(std::uint64_t, u8, correlation)       \
  FIELD(std::uint64_t, u8, stream)            \
  FIELD(std::uint64_t, u8, a)                 \
  FIELD(std::uint64_t, u8, b)                 \
  FIELD(std::uint64_t, u8, name)

/// The fields of a kName record: piece `part` of a name of `length` bytes, cut into pieces of
/// kTraceNamePiece bytes.
#define SLUICE_TRACE_NAME(FIELD)                         \
  FIELD(std::atomic<std::uint16_t>, u2, kind)            \
  FIELD(std::uint16_t, u2, part)                         \
  FIELD(std::uint32_t, u4, thread)                       \
  FIELD(SLUICE_TRACE_ARRAY(char, 16), V16, text)         \
  FIELD(std::uint64_t, u8, length)                       \
  FIELD(SLUICE_TRACE_ARRAY(char, 24), V24, text_goes_on) \
  FIELD(std::uint64_t, u8, name)

// A comma inside a macro argument would end the argument.
#define SLUICE_TRACE_ARRAY(type, size) std::array<type SLUICE_TRACE_COMMA size>
#define SLUICE_TRACE_COMMA ,
#define SLUICE_TRACE_MEMBER(type, code, name) type name;
#define SLUICE_TRACE_TEXT(type, code, name) " " #name ":" #code
#define SLUICE_LAUNCH_ENTRY(name) " " #name

struct TraceHeader {
  SLUICE_TRACE_HEADER(SLUICE_TRACE_MEMBER)
};
struct TraceRecord {
  SLUICE_TRACE_RECORD(SLUICE_TRACE_MEMBER)
};
struct TraceName {
  SLUICE_TRACE_NAME(SLUICE_TRACE_MEMBER)
};

/// One line each: the fields of the header, of a record and of a name, and the entries that the
/// flags of a launch index.
inline constexpr std::string_view kTraceSchema =
    "header" SLUICE_TRACE_HEADER(SLUICE_TRACE_TEXT) "\n"
    "record" SLUICE_TRACE_RECORD(SLUICE_TRACE_TEXT) "\n"
    "name" SLUICE_TRACE_NAME(SLUICE_TRACE_TEXT) "\n"
    "entries"
#include "shm/launch_entries.def"
    "\n";

#undef SLUICE_LAUNCH_ENTRY
#undef SLUICE_TRACE_TEXT
#undef SLUICE_TRACE_MEMBER
#undef SLUICE_TRACE_COMMA
#undef SLUICE_TRACE_ARRAY
#undef SLUICE_TRACE_NAME
#undef SLUICE_TRACE_RECORD
#undef SLUICE_TRACE_HEADER

inline constexpr std::size_t kTraceNamePiece =
    sizeof(TraceName::text) + sizeof(TraceName::text_goes_on);
// No padding: readers expect the fields without gaps.
static_assert(sizeof(TraceHeader) == 592 && offsetof(TraceHeader, name) == 528);
static_assert(sizeof(TraceHeader) <= kTraceSchemaOffset &&
              kTraceSchemaOffset + kTraceSchema.size() < kTraceHeaderSize);
static_assert(sizeof(TraceRecord) == 64 && offsetof(TraceRecord, name) == 56);
static_assert(sizeof(TraceName) == 64 && offsetof(TraceName, name) == 56);

enum class TraceKind : std::uint16_t {
  kNothing,  ///< Not written: the process died while writing, or the file ends here.
  kLaunch,   ///< A driver call on the host. flags: index of the entry; a: 1 for a graph; b:
             ///< CUresult.
  kExec,     ///< Execution on the GPU. a: node of the launched graph, or 0.
  kName,     ///< A piece of a kernel's name: see TraceName.
  kHold,     ///< A launching thread was held. flags: TraceHold; a: the gate; b: pid of a holder.
  kJobBegin = 6,  ///< Gates close. correlation: the client's job, from 1. flags: TraceJob.
  kJobEnd,        ///< begin: when the gates closed; the end if they never did. a: the time when the
            ///< program began the job; or kTraceNoJob. The gates close earlier than that for an
            ///< announced or predicted job, and later for a job with a target.
  kClock,   ///< begin: CLOCK_MONOTONIC; end: CLOCK_REALTIME at the same moment.
  kStep,    ///< A step of a program that is never idle. a: its kind.
  kWindow,  ///< The gates were open in the middle of a job. correlation: the job.
};

enum class TraceHold : std::uint16_t { kGate = 1, kEventGroup, kSyncPoint, kAhead };
enum class TraceJob : std::uint16_t { kExplicit = 1, kTransparent };

/// Field a of kJobEnd when gates were closed for a job that did not begin.
inline constexpr std::uint64_t kTraceNoJob = ~std::uint64_t{0};

}  // namespace sluice::shm
