#include "simgpu/driver/enqueue.hpp"

#include "simgpu/driver/capture.hpp"
#include "simgpu/driver/context.hpp"

namespace sluice::simgpu {

CUresult submit(Stream& stream, std::span<const Work> works, std::uint64_t* sequence) {
  const CUresult status = check_not_capturing(stream);
  // The legacy stream depends on all other streams.
  if (stream.channel->kind == ChannelKind::kLegacy) pass_all_channels(*stream.context);
  return status == CUDA_SUCCESS ? stream.submit(works, sequence) : status;
}

CUresult enqueue(Stream& stream, NodeContent content) {
  return stream.capturing ? add_captured_node(stream, std::move(content))
                          : submit(stream, content.works);
}

}  // namespace sluice::simgpu
