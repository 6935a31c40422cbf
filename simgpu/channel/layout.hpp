// The memory that a client shares with the GPU process, and the commands in it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::simgpu {

inline constexpr std::uint32_t kProtocolVersion = 6;
// Of an H200.
inline constexpr std::uint32_t kMultiprocessors = 132;
// The commands that a stream holds before a submitting call blocks, and the ring's places for them.
// Measured on one H200 (driver 580): behind a wait, a stream holds 1020 kernels, or 510 kernels
// with a wait in front of each, or 1020 event records.
inline constexpr std::uint64_t kQueueDepth = 1021;
inline constexpr std::uint64_t kRingSize = 1024;
inline constexpr std::size_t kMaxChannels = 1024;
inline constexpr std::size_t kMaxEvents = 65536;
inline constexpr std::size_t kMaxNames = 4096;
inline constexpr std::size_t kNameLength = 128;  // including the zero; longer names are cut

enum class Op : std::uint8_t {
  kNone,
  kKernel,       // a: duration in simulated ns, b: multiprocessors its grid fills; index: name;
                 // flags: KernelFlags
  kCopy,         // a: destination, b: source, c: bytes; flags: CopyKind
  kFill,         // a: destination, b: value, c: elements; width: bytes of one element
  kWaitValue,    // a: address, b: value; width 4 or 8; flags: CUstreamWaitValue_flags
  kWriteValue,   // a: address, b: value; width 4 or 8
  kEventRecord,  // index: event slot, a: number of the record
  kEventWait,    // index: event slot, a: number of the record
  kHostCall,     // a: function, b: argument
  kGraph,        // a: number of an uploaded graph
};

enum CopyKind : std::uint8_t {
  kCopyOnDevice = 0,
  kCopyAcrossBus = 1,
  kCopyTimeOnly = 2,  // flag: the caller moves the bytes after the copy has completed
};

enum KernelFlags : std::uint8_t {
  kFaults = 1,  // at its end, with an illegal address
};

struct Work {
  Op op = Op::kNone;
  std::uint8_t width = 0;
  std::uint8_t flags = 0;
  std::uint8_t reserved = 0;
  std::uint32_t index = 0;
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::uint64_t c = 0;
};
static_assert(sizeof(Work) == 32);

struct Command {
  Work work;
  std::uint64_t submit_ns = 0;  // CLOCK_MONOTONIC at the call
  std::uint64_t order = 0;      // position among all commands of the context
};
static_assert(sizeof(Command) == 48);

enum class ChannelKind : std::uint32_t {
  kBlocking,     // waits for the legacy default stream, and the legacy stream waits for it
  kNonBlocking,  // independent of the legacy default stream
  kLegacy,       // the legacy default stream
};

enum class ChannelState : std::uint32_t { kFree, kOpen, kClosing };

// The queue of a stream. The client writes commands and `submitted`; the GPU process writes
// `completed`. A command keeps its place until it has completed, so a full ring is a full launch
// queue. Sequence numbers continue when a later stream uses the channel.
struct alignas(128) Channel {
  std::atomic<ChannelState> state;
  std::atomic<ChannelKind> kind;
  std::atomic<std::uint32_t> context;
  std::atomic<std::int32_t> priority;
  std::atomic<std::uint64_t> stream_id;
  alignas(128) std::atomic<std::uint64_t> submitted;
  alignas(128) std::atomic<std::uint64_t> completed;
  std::atomic<std::uint64_t> wanted;  // the smallest sequence number that a thread waits for
  std::atomic<std::uint32_t> wake;    // futex
  // A host function that is due. The client's helper thread runs it and then sets host_done.
  std::atomic<std::uint64_t> host_due;
  std::atomic<std::uint64_t> host_done;
  std::atomic<std::uint64_t> host_function;
  std::atomic<std::uint64_t> host_argument;
  alignas(128) std::array<Command, kRingSize> ring;
};

struct EventSlot {
  std::atomic<std::uint64_t> done;     // number of the last completed record
  std::atomic<std::uint64_t> time_ns;  // CLOCK_MONOTONIC of that record
};

struct Area {
  std::uint32_t version;
  std::atomic<std::uint32_t> channels;    // number of channels that have ever been used
  std::atomic<std::uint32_t> host_calls;  // futex of the helper thread
  std::atomic<std::uint32_t> gone;        // set by the GPU process when it drops the client
  std::atomic<std::int32_t> fault;  // the CUresult of all calls from now on; 0 without a fault
  std::array<std::array<char, kNameLength>, kMaxNames> names;
  std::array<EventSlot, kMaxEvents> events;
  alignas(4096) std::array<Channel, kMaxChannels> ring;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<ChannelState>::is_always_lock_free);

inline constexpr std::uint64_t kNothingWanted = ~std::uint64_t{0};

}  // namespace sluice::simgpu
