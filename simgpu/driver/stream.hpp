#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "simgpu/channel/layout.hpp"
#include "simgpu/driver/api.hpp"
#include "simgpu/driver/connection.hpp"
#include "simgpu/driver/graph.hpp"

namespace sluice::simgpu {

struct Context;
struct Capture;

// The channels of the shared area that no stream uses.
class ChannelPool {
 public:
  explicit ChannelPool(Connection& connection) : connection_(connection) {}
  [[nodiscard]] Connection& connection() const { return connection_; }

  // The index of a channel with an empty queue; kMaxChannels if there is none left.
  std::size_t take();
  // Work that is still queued continues. The channel is given out again after that work.
  void give_back(std::size_t index);

 private:
  Connection& connection_;
  std::mutex mutex_;
  std::vector<std::size_t> draining_;
};

struct Stream {
  Stream(ChannelPool& pool, std::shared_ptr<Context> owner, std::size_t index);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Queues the commands together and stores the sequence number of the last one. While the queue is
  // full, the call blocks and holds `submitting`, as the real driver does.
  CUresult submit(std::span<const Work> works, std::uint64_t* sequence = nullptr);

  // The last submitted sequence number, read with `submitting` held.
  std::uint64_t last_submitted();
  [[nodiscard]] bool completed(std::uint64_t sequence) const {
    return channel->completed.load() >= sequence;
  }
  CUresult wait(std::uint64_t sequence) const;

  ChannelPool& channels;
  std::shared_ptr<Context> context;
  std::size_t channel_index;
  Channel* channel;
  std::mutex submitting;
  std::uint64_t id;
  CUstream handle = nullptr;
  unsigned flags = 0;
  int priority = 0;

  std::atomic<bool> capturing = false;
  // Guarded by Graphs::mutex:
  std::shared_ptr<Capture> capture;
  std::vector<Link> capture_links;      // dependencies of the next node
  std::vector<CUgraphNode> info_nodes;  // the last answer of cuStreamGetCaptureInfo
  std::vector<CUgraphEdgeData> info_edges;

 private:
  CUresult submit_one(const Work& work);
};

// Creates a stream of `context`; null if there are too many.
std::shared_ptr<Stream> make_stream(ChannelPool& channels, const std::shared_ptr<Context>& context,
                                    ChannelKind kind, int priority);

// Most calls that create, change or end something need every channel of the context for a moment.
// So they block while another thread is blocked in a launch on a full queue.
void pass_all_channels(Context& context);

// Waits until everything submitted so far has completed.
CUresult drain(Context& context);

// For the _ptsz forms, in which handle 0 means the calling thread's default stream.
inline CUstream per_thread(CUstream handle) {
  return handle == nullptr ? CU_STREAM_PER_THREAD : handle;
}

}  // namespace sluice::simgpu
