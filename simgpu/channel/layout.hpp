// The memory one client shares with the GPU process, and the commands that travel in it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::simgpu {

inline constexpr std::uint32_t kProtocolVersion = 2;
// Commands of any kind that a stream holds before a submitting call blocks, and the places of the
// ring for them. Measured on one H200 (driver 580): behind a wait, 1020 kernels, or 510 with a
// wait in front of each, or 1020 event records.
inline constexpr std::uint64_t kQueueDepth = 1021;
inline constexpr std::uint64_t kRingSize = 1024;
inline constexpr std::size_t kMaxChannels = 1024;
inline constexpr std::size_t kMaxEvents = 65536;
inline constexpr std::size_t kMaxNames = 4096;
inline constexpr std::size_t kNameLength = 128;  // with the zero; the rest is cut

enum class Op : std::uint8_t {
  kNone,
  kKernel,       // a: length in simulated ns; index: name
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
  kCopyTimeOnly = 2,  // bit: the caller moves the bytes itself once the copy has completed
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
  std::uint64_t order = 0;      // position among all commands of the context, see Channel::kind
};
static_assert(sizeof(Command) == 48);

enum class ChannelKind : std::uint32_t {
  kBlocking,     // runs in turn with the legacy default stream
  kNonBlocking,  // ignores it
  kLegacy,       // the legacy default stream itself
};

enum class ChannelState : std::uint32_t { kFree, kOpen, kClosing };

// A stream's queue: the client writes commands and `submitted`, the GPU process `completed`. A
// command keeps its place until it has completed, so a full ring is a full launch queue.
// Sequence numbers never start again, also when the channel is used by a later stream.
struct alignas(128) Channel {
  std::atomic<ChannelState> state;
  std::atomic<ChannelKind> kind;
  std::atomic<std::uint32_t> context;
  std::atomic<std::int32_t> priority;
  std::atomic<std::uint64_t> stream_id;
  alignas(128) std::atomic<std::uint64_t> submitted;
  alignas(128) std::atomic<std::uint64_t> completed;
  std::atomic<std::uint64_t> wanted;  // smallest sequence number a thread sleeps for
  std::atomic<std::uint32_t> wake;    // futex
  // A host function that is due: the client's helper thread runs it, then sets host_done.
  std::atomic<std::uint64_t> host_due;
  std::atomic<std::uint64_t> host_done;
  std::atomic<std::uint64_t> host_function;
  std::atomic<std::uint64_t> host_argument;
  alignas(128) std::array<Command, kRingSize> ring;
};

struct EventSlot {
  std::atomic<std::uint64_t> done;     // number of the last record that completed
  std::atomic<std::uint64_t> time_ns;  // its CLOCK_MONOTONIC
};

struct Area {
  std::uint32_t version;
  std::atomic<std::uint32_t> channels;    // channels from this index on have never been used
  std::atomic<std::uint32_t> host_calls;  // futex of the helper thread
  std::atomic<std::uint32_t> gone;        // set by the GPU process when it drops the client
  std::array<std::array<char, kNameLength>, kMaxNames> names;
  std::array<EventSlot, kMaxEvents> events;
  alignas(4096) std::array<Channel, kMaxChannels> ring;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<ChannelState>::is_always_lock_free);

inline constexpr std::uint64_t kNothingWanted = ~std::uint64_t{0};

}  // namespace sluice::simgpu
