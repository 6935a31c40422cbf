#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "simgpu/channel/layout.hpp"
#include "simgpu/driver/api.hpp"
#include "simgpu/driver/graph.hpp"

namespace sluice::simgpu {

struct Context;
struct Capture;

// The channels of the shared area that are in no stream's hands.
class ChannelPool {
 public:
  // The index of a channel whose queue is empty; kMaxChannels: none left.
  std::size_t take();
  // Work that is still queued runs on; the channel is given out again when it has.
  void give_back(std::size_t index);

 private:
  std::mutex mutex_;
  std::vector<std::size_t> draining_;
};

struct Stream {
  Stream(std::shared_ptr<Context> owner, std::size_t index);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Queues the commands in one go and says which sequence number the last one got. Blocks while
  // the queue is full, with `submitting` held, as the real driver does.
  CUresult submit(std::span<const Work> works, std::uint64_t* sequence = nullptr);

  // What was submitted so far, seen with `submitting` held.
  std::uint64_t last_submitted();
  [[nodiscard]] bool completed(std::uint64_t sequence) const {
    return channel->completed.load() >= sequence;
  }
  CUresult wait(std::uint64_t sequence) const;

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
  std::vector<Link> capture_links;      // what the next node will depend on
  std::vector<CUgraphNode> info_nodes;  // what cuStreamGetCaptureInfo handed out last
  std::vector<CUgraphEdgeData> info_edges;

 private:
  CUresult submit_one(const Work& work);
};

// Makes a stream of `context`; null when there are too many.
std::shared_ptr<Stream> make_stream(const std::shared_ptr<Context>& context, ChannelKind kind,
                                    int priority);

// The stream that a handle, 0, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD means.
CUresult find_stream(CUstream handle, std::shared_ptr<Stream>& stream);

// For the _ptsz forms: handle 0 is the calling thread's own default stream.
inline CUstream per_thread(CUstream handle) {
  return handle == nullptr ? CU_STREAM_PER_THREAD : handle;
}

}  // namespace sluice::simgpu
