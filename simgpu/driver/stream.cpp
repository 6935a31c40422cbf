// The channel of a stream: allocation, submission, waiting.
#include "simgpu/driver/stream.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "simgpu/driver/context.hpp"

namespace sluice::simgpu {
namespace {

// A call that is blocked on a full queue continues when this many places are free. Waking it for
// every kernel would cost a small machine more than the kernels do.
constexpr std::uint64_t kRefill = 32;

std::atomic<std::uint64_t> next_stream_id = 1;

std::vector<std::shared_ptr<Stream>> live_streams(Context& context) {
  std::vector<std::shared_ptr<Stream>> live;
  const std::lock_guard lock(context.mutex);
  std::erase_if(context.streams, [&](const std::weak_ptr<Stream>& weak) {
    auto stream = weak.lock();
    if (stream) live.push_back(std::move(stream));
    return weak.expired();
  });
  return live;
}

}  // namespace

std::size_t ChannelPool::take() {
  const std::lock_guard lock(mutex_);
  Area& area = connection_.area();
  const auto drained = std::find_if(draining_.begin(), draining_.end(), [&](std::size_t index) {
    const Channel& channel = area.ring.at(index);
    return channel.completed.load() == channel.submitted.load();
  });
  if (drained != draining_.end()) {
    const std::size_t index = *drained;
    draining_.erase(drained);
    return index;
  }
  const std::uint32_t index = area.channels.load();
  if (index == kMaxChannels) return kMaxChannels;
  area.channels = index + 1;
  return index;
}

void ChannelPool::give_back(std::size_t index) {
  const std::lock_guard lock(mutex_);
  draining_.push_back(index);
}

Stream::Stream(ChannelPool& pool, std::shared_ptr<Context> owner, std::size_t index)
    : channels(pool),
      context(std::move(owner)),
      channel_index(index),
      channel(&pool.connection().area().ring.at(index)),
      id(next_stream_id++) {}

Stream::~Stream() {
  channel->state = ChannelState::kClosing;
  channels.give_back(channel_index);
}

std::shared_ptr<Stream> make_stream(ChannelPool& channels, const std::shared_ptr<Context>& context,
                                    ChannelKind kind, int priority) {
  const std::size_t index = channels.take();
  if (index == kMaxChannels) return nullptr;
  auto stream = std::make_shared<Stream>(channels, context, index);
  Channel& channel = *stream->channel;
  channel.kind = kind;
  channel.context = context->id.load();
  channel.priority = priority;
  channel.stream_id = stream->id;
  channel.wanted = kNothingWanted;
  channel.state = ChannelState::kOpen;
  stream->priority = priority;
  stream->flags = kind == ChannelKind::kNonBlocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
  const std::lock_guard lock(context->mutex);
  context->streams.push_back(stream);
  return stream;
}

CUresult Stream::submit_one(const Work& work) {
  const std::uint64_t sequence = channel->submitted.load(std::memory_order_relaxed) + 1;
  if (sequence > channel->completed.load() + kQueueDepth) {
    const CUresult status = wait(sequence - 1 - kQueueDepth + kRefill);
    if (status != CUDA_SUCCESS) return status;
  }
  Command& command = channel->ring.at((sequence - 1) % kRingSize);
  command.work = work;
  command.submit_ns = base::monotonic_ns();
  command.order = context->next_order++;
  channel->submitted.store(sequence);
  // While earlier commands are outstanding, the GPU process will read this channel anyway.
  if (channel->completed.load() == sequence - 1) channels.connection().ring();
  return CUDA_SUCCESS;
}

CUresult Stream::submit(std::span<const Work> works, std::uint64_t* sequence) {
  const std::lock_guard lock(submitting);
  if (context->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  for (const Work& work : works) {
    const CUresult status = submit_one(work);
    if (status != CUDA_SUCCESS) return status;
  }
  if (sequence != nullptr) *sequence = channel->submitted.load(std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

std::uint64_t Stream::last_submitted() {
  const std::lock_guard lock(submitting);
  return channel->submitted.load(std::memory_order_relaxed);
}

CUresult Stream::wait(std::uint64_t sequence) const {
  return channels.connection().wait_completed(*channel, sequence) ? channels.connection().state()
                                                                  : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

void pass_all_channels(Context& context) {
  for (const auto& stream : live_streams(context)) stream->last_submitted();
}

CUresult drain(Context& context) {
  for (const auto& stream : live_streams(context)) {
    const CUresult status = stream->wait(stream->last_submitted());
    if (status != CUDA_SUCCESS) return status;
  }
  return CUDA_SUCCESS;
}

}  // namespace sluice::simgpu
