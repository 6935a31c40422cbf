#include "simgpu/gpu/event_log.hpp"

#include <fcntl.h>

#include <cstring>

namespace sluice::simgpu {
namespace {

const char* kind_of(Op op) {
  switch (op) {
    case Op::kKernel:
      return "kernel";
    case Op::kCopy:
      return "copy";
    case Op::kFill:
      return "fill";
    case Op::kWaitValue:
      return "wait";
    case Op::kWriteValue:
      return "write";
    case Op::kEventRecord:
      return "record";
    case Op::kEventWait:
      return "join";
    case Op::kHostCall:
      return "host";
    case Op::kNone:
    case Op::kGraph:
      break;
  }
  return nullptr;
}

std::string name_of(const Stream& stream) {
  if (stream.work.op != Op::kKernel || stream.work.index >= kMaxNames) return "-";
  const auto& name = stream.client->area()->names.at(stream.work.index);
  std::string text(name.data(), strnlen(name.data(), name.size()));
  return text.empty() ? "-" : text;
}

}  // namespace

EventLog::EventLog(const char* path)
    : file_(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}

void EventLog::line(const char* kind, const Client& client, std::uint64_t stream,
                    std::uint64_t sequence, Nanoseconds start, Nanoseconds end,
                    const std::string& name) {
  buffer_ += kind;
  buffer_ += ' ' + std::to_string(client.pid) + ' ' + std::to_string(stream) + ' ' +
             std::to_string(sequence) + ' ' + std::to_string(start) + ' ' + std::to_string(end) +
             ' ' + name + '\n';
  if (buffer_.size() > 65536) flush();
}

void EventLog::work(const Stream& stream, Nanoseconds end) {
  const char* kind = kind_of(stream.work.op);
  if (!file_ || kind == nullptr) return;
  line(kind, *stream.client, stream.channel->stream_id, stream.channel->completed + 1,
       stream.begun_at, end, name_of(stream));
}

void EventLog::graph(const Stream& stream, Nanoseconds end) {
  if (!file_) return;
  line("graph", *stream.client, stream.channel->stream_id, stream.channel->completed + 1,
       stream.graph_begun_at, end, std::to_string(stream.command.work.a));
}

void EventLog::context_switch(const Client& client, Nanoseconds start, Nanoseconds end) {
  if (file_) line("switch", client, 0, 0, start, end, "-");
}

void EventLog::flush() {
  const char* data = buffer_.data();
  std::size_t left = buffer_.size();
  while (file_ && left > 0) {
    const ssize_t written = write(file_.get(), data, left);
    if (written <= 0) break;
    data += written;
    left -= static_cast<std::size_t>(written);
  }
  buffer_.clear();
}

}  // namespace sluice::simgpu
