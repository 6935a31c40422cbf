// Copies and fills. They take time and move the bytes in stream order.
#include <cstring>

#include "simgpu/driver/driver.hpp"
#include "simgpu/driver/enqueue.hpp"

using namespace sluice::simgpu;

namespace {

enum class End { kDevice, kHost, kEither };

// One end of a copy.
struct Place {
  std::uint64_t address = 0;
  bool known = false;  // the GPU process knows the memory: device memory, or host memory allocated
                       // or registered
  bool on_device = false;
};

CUresult look_up(std::uint64_t address, std::size_t bytes, End end, Place& place) {
  const Memory::Found found = driver().memory.find(address);
  const bool whole = found.known && found.bytes_left >= bytes;
  place = {address, whole, found.known && is_on_device(found.kind)};
  const bool bad_device = end == End::kDevice && !whole;
  const bool runs_out = place.on_device && !whole;
  return address == 0 || bad_device || runs_out ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

Work copy_work(const Place& to, const Place& from, std::size_t bytes) {
  Work work;
  work.op = Op::kCopy;
  work.flags = to.on_device && from.on_device ? kCopyOnDevice : kCopyAcrossBus;
  work.a = to.address;
  work.b = from.address;
  work.c = bytes;
  return work;
}

// Waits for the stream and then lets the caller move the bytes, which may be in any memory.
CUresult copy_now(Stream& stream, Work work) {
  work.flags |= kCopyTimeOnly;
  std::uint64_t sequence = 0;
  CUresult status = submit(stream, {&work, 1}, &sequence);
  if (status == CUDA_SUCCESS) status = stream.wait(sequence);
  if (status != CUDA_SUCCESS) return status;
  std::memmove(reinterpret_cast<void*>(work.a), reinterpret_cast<const void*>(work.b), work.c);
  return CUDA_SUCCESS;
}

CUresult copy_from_pageable(const std::shared_ptr<Stream>& stream, Work work) {
  const std::uint64_t staged = driver().staging.put(reinterpret_cast<const void*>(work.b), work.c);
  if (staged == 0) return copy_now(*stream, work);
  work.b = staged;
  std::uint64_t sequence = 0;
  const CUresult status = submit(*stream, {&work, 1}, &sequence);
  driver().staging.used_until(staged, stream, sequence);
  return status;
}

struct Copy {
  std::uint64_t to;
  End to_end;
  std::uint64_t from;
  End from_end;
  std::size_t bytes;
};

CUresult prepare(const Copy& copy, Place& to, Place& from) {
  const CUresult status = look_up(copy.to, copy.bytes, copy.to_end, to);
  return status == CUDA_SUCCESS ? look_up(copy.from, copy.bytes, copy.from_end, from) : status;
}

CUresult copy_synchronously(const Copy& copy, CUstream handle) {
  return with_context([&](Context& context) {
    if (copy.bytes == 0) return CUDA_SUCCESS;
    Place to;
    Place from;
    const CUresult status = prepare(copy, to, from);
    if (status != CUDA_SUCCESS) return status;
    pass_all_channels(context);
    return with_stream(
        handle, [&](Stream& stream) { return copy_now(stream, copy_work(to, from, copy.bytes)); });
  });
}

bool all_is_in_reach(const Place& to, const Place& from) {
  const auto is_in_reach = [](const Place& place) {
    return place.known || driver().memory.gpu_reaches(place.address);
  };
  return is_in_reach(to) && is_in_reach(from);
}

CUresult copy_asynchronously(const Copy& copy, CUstream handle) {
  return with_context([&](Context&) {
    if (copy.bytes == 0) return CUDA_SUCCESS;
    Place to;
    Place from;
    CUresult status = prepare(copy, to, from);
    if (status != CUDA_SUCCESS) return status;
    std::shared_ptr<Stream> stream;
    status = find_stream(handle, stream);
    if (status != CUDA_SUCCESS) return status;
    const Work work = copy_work(to, from, copy.bytes);
    // In a capture, pageable memory too is left to the GPU process.
    if (stream->capturing && !all_is_in_reach(to, from)) return CUDA_ERROR_NOT_SUPPORTED;
    if ((to.known && from.known) || stream->capturing)
      return enqueue(*stream, content_of(CU_GRAPH_NODE_TYPE_MEMCPY, work));
    return to.known ? copy_from_pageable(stream, work) : copy_now(*stream, work);
  });
}

CUresult fill(CUdeviceptr to, std::uint64_t value, unsigned width, std::size_t count,
              CUstream handle, bool synchronously) {
  return with_context([&](Context& context) {
    if (count == 0) return CUDA_SUCCESS;
    if (synchronously) pass_all_channels(context);
    Place place;
    const CUresult status = look_up(to, count * width, End::kDevice, place);
    if (status != CUDA_SUCCESS || to % width != 0) return CUDA_ERROR_INVALID_VALUE;
    Work work;
    work.op = Op::kFill;
    work.width = static_cast<std::uint8_t>(width);
    work.a = to;
    work.b = value;
    work.c = count;
    return with_stream(handle, [&](Stream& stream) {
      if (!synchronously) return enqueue(stream, content_of(CU_GRAPH_NODE_TYPE_MEMSET, work));
      std::uint64_t sequence = 0;
      const CUresult submitted = submit(stream, {&work, 1}, &sequence);
      return submitted == CUDA_SUCCESS ? stream.wait(sequence) : submitted;
    });
  });
}

std::uint64_t address(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

Copy to_device(CUdeviceptr to, const void* from, std::size_t bytes) {
  return {to, End::kDevice, address(from), End::kHost, bytes};
}
Copy to_host(void* to, CUdeviceptr from, std::size_t bytes) {
  return {address(to), End::kHost, from, End::kDevice, bytes};
}
Copy on_device(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return {to, End::kDevice, from, End::kDevice, bytes};
}
Copy anywhere(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return {to, End::kEither, from, End::kEither, bytes};
}

}  // namespace

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return copy_synchronously(to_device(dstDevice, srcHost, ByteCount), nullptr);
}
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return copy_synchronously(to_device(dstDevice, srcHost, ByteCount), CU_STREAM_PER_THREAD);
}
CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_synchronously(to_host(dstHost, srcDevice, ByteCount), nullptr);
}
CUresult cuMemcpyDtoH_v2_ptds(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_synchronously(to_host(dstHost, srcDevice, ByteCount), CU_STREAM_PER_THREAD);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_synchronously(on_device(dstDevice, srcDevice, ByteCount), nullptr);
}
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_synchronously(on_device(dstDevice, srcDevice, ByteCount), CU_STREAM_PER_THREAD);
}
CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return copy_synchronously(anywhere(dst, src, ByteCount), nullptr);
}
CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return copy_synchronously(anywhere(dst, src, ByteCount), CU_STREAM_PER_THREAD);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  return copy_asynchronously(to_device(dstDevice, srcHost, ByteCount), hStream);
}
CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return copy_asynchronously(to_host(dstHost, srcDevice, ByteCount), hStream);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return copy_asynchronously(on_device(dstDevice, srcDevice, ByteCount), hStream);
}
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return copy_asynchronously(anywhere(dst, src, ByteCount), hStream);
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return fill(dstDevice, uc, 1, N, nullptr, true);
}
CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return fill(dstDevice, uc, 1, N, CU_STREAM_PER_THREAD, true);
}
CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return fill(dstDevice, ui, 4, N, nullptr, true);
}
CUresult cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return fill(dstDevice, ui, 4, N, CU_STREAM_PER_THREAD, true);
}
CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  return fill(dstDevice, uc, 1, N, hStream, false);
}
CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  return fill(dstDevice, ui, 4, N, hStream, false);
}
