// Stream waits for memory values, and stream writes of memory values.
#include "simgpu/driver/memop.hpp"

#include <vector>

#include "simgpu/driver/driver.hpp"
#include "simgpu/driver/enqueue.hpp"

namespace sluice::simgpu {
namespace {

CUresult check_address(CUdeviceptr address, unsigned width) {
  if (address == 0 || address % width != 0) return CUDA_ERROR_INVALID_VALUE;
  const Memory::Found found = driver().memory.find(address);
  return found.known && found.bytes_left >= width ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult wait_work(CUdeviceptr address, std::uint64_t value, unsigned width, unsigned flags,
                   Work& work) {
  if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (flags > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
  work.op = Op::kWaitValue;
  work.width = static_cast<std::uint8_t>(width);
  work.flags = static_cast<std::uint8_t>(flags);
  work.a = address;
  work.b = value;
  return check_address(address, width);
}

CUresult write_work(CUdeviceptr address, std::uint64_t value, unsigned width, unsigned flags,
                    Work& work) {
  // The real driver refuses CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER too.
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  work.op = Op::kWriteValue;
  work.width = static_cast<std::uint8_t>(width);
  work.a = address;
  work.b = value;
  return check_address(address, width);
}

CUresult batch_works(unsigned count, const CUstreamBatchMemOpParams* operations,
                     std::vector<Work>& works) {
  if (count > 256 || (count != 0 && operations == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const CUstreamBatchMemOpParams& operation = operations[i];
    const auto& wait = operation.waitValue;
    const auto& write = operation.writeValue;
    Work work;
    CUresult status = CUDA_ERROR_NOT_SUPPORTED;
    switch (operation.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        status = wait_work(wait.address, wait.value, 4, wait.flags, work);
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        status = wait_work(wait.address, wait.value64, 8, wait.flags, work);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        status = write_work(write.address, write.value, 4, write.flags, work);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        status = write_work(write.address, write.value64, 8, write.flags, work);
        break;
      case CU_STREAM_MEM_OP_BARRIER:
        continue;  // the commands of a stream are in order anyway
      default:
        break;
    }
    if (status != CUDA_SUCCESS) return status;
    works.push_back(work);
  }
  return CUDA_SUCCESS;
}

}  // namespace sluice::simgpu

using namespace sluice::simgpu;

namespace {

CUresult wait(CUstream handle, CUdeviceptr addr, std::uint64_t value, unsigned width,
              unsigned flags) {
  return with_stream(handle, [&](Stream& stream) {
    Work work;
    const CUresult status = wait_work(addr, value, width, flags, work);
    if (status != CUDA_SUCCESS) return status;
    return enqueue(stream, content_of(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, work));
  });
}

CUresult write(CUstream handle, CUdeviceptr addr, std::uint64_t value, unsigned width,
               unsigned flags) {
  return with_stream(handle, [&](Stream& stream) {
    Work work;
    const CUresult status = write_work(addr, value, width, flags, work);
    if (status != CUDA_SUCCESS) return status;
    return enqueue(stream, content_of(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, work));
  });
}

CUresult batch(CUstream handle, unsigned count, const CUstreamBatchMemOpParams* operations,
               unsigned flags) {
  return with_stream(handle, [&](Stream& stream) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    std::vector<Work> works;
    const CUresult status = batch_works(count, operations, works);
    if (status != CUDA_SUCCESS) return status;
    NodeContent content;
    content.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    content.works = std::move(works);
    return enqueue(stream, std::move(content));
  });
}

}  // namespace

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags) {
  return wait(stream, addr, value, 4, flags);
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags) {
  return wait(stream, addr, value, 8, flags);
}
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int flags) {
  return write(stream, addr, value, 4, flags);
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int flags) {
  return write(stream, addr, value, 8, flags);
}
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  return batch(stream, count, paramArray, flags);
}

// The first versions of these calls do not differ in anything that is simulated.
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                             unsigned int flags) {
  return wait(stream, addr, value, 4, flags);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                             unsigned int flags) {
  return wait(stream, addr, value, 8, flags);
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                              unsigned int flags) {
  return write(stream, addr, value, 4, flags);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                              unsigned int flags) {
  return write(stream, addr, value, 8, flags);
}
CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count,
                            CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  return batch(stream, count, paramArray, flags);
}
