#pragma once

#include <string>

#include "base/fd.hpp"
#include "simgpu/gpu/model.hpp"

namespace sluice::simgpu {

// The log of SLUICE_SIM_LOG: one line per piece of work, when it ends. simgpu/README.md has the
// format.
class EventLog {
 public:
  EventLog() = default;
  explicit EventLog(const char* path);
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;
  EventLog(EventLog&&) = default;
  EventLog& operator=(EventLog&&) = default;
  ~EventLog() { flush(); }

  void work(const Stream& stream, Nanoseconds end);
  void graph(const Stream& stream, Nanoseconds end);
  void context_switch(const Client& client, Nanoseconds start, Nanoseconds end);
  void flush();

 private:
  void line(const char* kind, const Client& client, std::uint64_t stream, std::uint64_t sequence,
            Nanoseconds start, Nanoseconds end, const std::string& name);

  base::Fd file_;
  std::string buffer_;
};

}  // namespace sluice::simgpu
