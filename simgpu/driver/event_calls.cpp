#include "simgpu/driver/capture.hpp"
#include "simgpu/driver/driver.hpp"
#include "simgpu/driver/enqueue.hpp"

using namespace sluice::simgpu;

namespace {

std::atomic<std::uint64_t> next_record = 1;

template <typename F>
CUresult with_event(CUevent handle, F&& call) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<Event> event = driver().events.find(handle);
  return event ? call(*event) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult record_event(Event& event, const std::shared_ptr<Stream>& stream) {
  bool captured = false;
  const CUresult as_capture = capture_record(event, *stream, captured);
  if (captured) return as_capture;
  Work work;
  work.op = Op::kEventRecord;
  work.index = static_cast<std::uint32_t>(event.slot);
  work.a = next_record++;
  std::uint64_t sequence = 0;
  const CUresult status = submit(*stream, {&work, 1}, &sequence);
  if (status != CUDA_SUCCESS) return status;
  const std::lock_guard lock(event.mutex);
  if (event.record.number < work.a) event.record = {work.a, sequence, stream};
  return CUDA_SUCCESS;
}

CUresult check_host_may_ask(const Event& event) {
  if (event.in_capture) return refuse_captured(event);
  return check_unsafe_call();
}

CUresult elapsed(float* milliseconds, CUevent start, CUevent end) {
  return with_event(start, [&](Event& first) {
    return with_event(end, [&](Event& second) {
      if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
      if (((first.flags | second.flags) & CU_EVENT_DISABLE_TIMING) != 0) {
        return CUDA_ERROR_INVALID_HANDLE;
      }
      const Event::Record from = first.last_record();
      const Event::Record to = second.last_record();
      if (from.number == 0 || to.number == 0) return CUDA_ERROR_INVALID_HANDLE;
      const auto& slots = driver().connection.area().events;
      const EventSlot& a = slots.at(first.slot);
      const EventSlot& b = slots.at(second.slot);
      if (a.done < from.number || b.done < to.number) return CUDA_ERROR_NOT_READY;
      // GPU time: the durations that a program measures must not depend on the scale.
      const double ns = static_cast<double>(b.time_ns) - static_cast<double>(a.time_ns);
      *milliseconds = static_cast<float>(ns / driver().connection.gpu().scale / 1e6);
      return CUDA_SUCCESS;
    });
  });
}

}  // namespace

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  return with_context([&](Context& context) {
    if (phEvent == nullptr || (Flags & ~7U) != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((Flags & CU_EVENT_INTERPROCESS) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    pass_all_channels(context);
    const std::size_t slot = driver().event_slots.take();
    if (slot == kMaxEvents) return CUDA_ERROR_OUT_OF_MEMORY;
    auto event = std::make_shared<Event>(driver().event_slots, slot);
    event->flags = Flags;
    event->context = current_context();
    *phEvent = driver().events.add(std::move(event));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<Event> event = driver().events.take(hEvent);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  pass_all_channels(*event->context);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent hEvent) { return cuEventDestroy_v2(hEvent); }

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  return with_event(hEvent, [&](Event& event) {
    std::shared_ptr<Stream> stream;
    const CUresult status = find_stream(hStream, stream);
    return status == CUDA_SUCCESS ? record_event(event, stream) : status;
  });
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return flags == CU_EVENT_RECORD_DEFAULT ? cuEventRecord(hEvent, hStream)
                                          : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuEventQuery(CUevent hEvent) {
  return with_event(hEvent, [](Event& event) {
    if (const CUresult status = check_host_may_ask(event); status != CUDA_SUCCESS) return status;
    const Event::Record record = event.last_record();
    if (record.number == 0) return CUDA_SUCCESS;
    if (record.stream->completed(record.sequence)) return driver().usable();  // or a fault ended it
    thread_local unsigned queries = 0;
    const bool lost = ++queries % 64 == 0 && driver().connection.check_lost();
    return lost ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuEventSynchronize(CUevent hEvent) {
  return with_event(hEvent, [](Event& event) {
    if (const CUresult status = check_host_may_ask(event); status != CUDA_SUCCESS) return status;
    const Event::Record record = event.last_record();
    return record.number == 0 ? CUDA_SUCCESS : record.stream->wait(record.sequence);
  });
}

CUresult cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return elapsed(pMilliseconds, hStart, hEnd);
}
CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return elapsed(pMilliseconds, hStart, hEnd);
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  return with_event(hEvent, [&](Event& event) {
    std::shared_ptr<Stream> stream;
    CUresult status = find_stream(hStream, stream);
    if (status != CUDA_SUCCESS) return status;
    if (Flags != CU_EVENT_WAIT_DEFAULT) return CUDA_ERROR_NOT_SUPPORTED;
    bool captured = false;
    status = capture_wait(stream, event, captured);
    if (captured) return status;
    const Event::Record record = event.last_record();
    if (record.number == 0) return CUDA_SUCCESS;
    Work work;
    work.op = Op::kEventWait;
    work.index = static_cast<std::uint32_t>(event.slot);
    work.a = record.number;
    return submit(*stream, {&work, 1});
  });
}
