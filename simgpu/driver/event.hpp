#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "simgpu/channel/layout.hpp"
#include "simgpu/driver/api.hpp"
#include "simgpu/driver/graph.hpp"

namespace sluice::simgpu {

struct Capture;
struct Context;
struct Stream;

class EventSlots {
 public:
  // Returns kMaxEvents if there is none left.
  std::size_t take();
  void give_back(std::size_t index);

 private:
  std::mutex mutex_;
  std::vector<std::size_t> free_;
  std::size_t used_ = 0;
};

struct Event {
  Event(EventSlots& pool, std::size_t slot_index) : slots(pool), slot(slot_index) {}
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // The last record. Number 0: never recorded.
  struct Record {
    std::uint64_t number = 0;
    std::uint64_t sequence = 0;
    std::shared_ptr<Stream> stream;
  };
  Record last_record();

  EventSlots& slots;
  std::size_t slot;
  unsigned flags = 0;
  std::shared_ptr<Context> context;

  std::mutex mutex;  // guards `record`; never held during a submission, which may block
  Record record;

  std::atomic<bool> in_capture = false;  // the last record was captured
  // Guarded by Graphs::mutex:
  std::weak_ptr<Capture> captured;
  std::vector<Link> captured_links;
};

}  // namespace sluice::simgpu
