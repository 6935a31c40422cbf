#include "tests/support/attached_client.hpp"

#include <chrono>
#include <stdexcept>

#include "base/clock.hpp"
#include "shm/view.hpp"
#include "tests/support/requests.hpp"

namespace sluice::test {

AttachedClient::AttachedClient(const std::string& session, int priority, int device)
    : connection_(connect_to(session)), mapping_(shm::BoardMapping::attach(session)) {
  const shm::Reply reply = ask_controller(connection_.get(), good_request(priority, device));
  if (reply.status != shm::ReplyStatus::kOk) throw std::runtime_error(reply.text.data());
  slot_ = reply.slot;
  shm::BoardView view(board());
  if (!board().slots[static_cast<std::size_t>(slot_)].alive.take() || !shm::go_live(view, slot_)) {
    throw std::runtime_error("slot " + std::to_string(slot_) + " is not to be had");
  }
  beat_ = std::jthread([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      board().slots[static_cast<std::size_t>(slot_)].watcher_beat_ns.store(base::monotonic_ns());
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
}

AttachedClient::~AttachedClient() {
  shm::BoardView view(board());
  shm::leave(view, slot_);
}

void AttachedClient::begin() {
  shm::BoardView view(board());
  shm::begin_job(view, slot_);
}

void AttachedClient::end() {
  shm::BoardView view(board());
  shm::end_job(view, slot_);
}

}  // namespace sluice::test
