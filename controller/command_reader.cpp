#include "controller/command_reader.hpp"

#include <thread>

namespace sluice::controller {

CommandReader::CommandReader() {
  // Detached: the thread may be stuck in the kernel when the controller exits.
  std::thread([shared = shared_] { read_all(shared); }).detach();
}

CommandReader::~CommandReader() {
  const std::lock_guard lock(shared_->mutex);
  shared_->stop = true;
  shared_->wake.notify_one();
}

void CommandReader::ask(int slot, std::uint32_t generation, pid_t pid) {
  constexpr std::size_t kMostAsked = 256;
  const std::lock_guard lock(shared_->mutex);
  // A process can block the reader for as long as it likes: its memory may be a file of FUSE.
  if (shared_->asked.size() >= kMostAsked) return;
  shared_->asked.push_back({slot, generation, pid, {}});
  shared_->wake.notify_one();
}

void CommandReader::deliver(Clients& clients) {
  std::vector<Item> done;
  {
    const std::lock_guard lock(shared_->mutex);
    done.swap(shared_->done);
  }
  for (const Item& item : done) {
    if (item.command.empty() || clients.info(item.slot).generation != item.generation) continue;
    auto& field = clients.slot(item.slot).command;
    store_text(field.data(), field.size(), item.command);
  }
}

void CommandReader::read_all(const std::shared_ptr<Shared>& shared) {
  constexpr std::size_t kCommandBytes = sizeof(shm::Slot::command) - 1;
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->wake.wait(lock, [&] { return shared->stop || !shared->asked.empty(); });
    if (shared->stop) return;
    Item item = std::move(shared->asked.front());
    shared->asked.pop_front();
    lock.unlock();
    item.command = command_line(item.pid, kCommandBytes);
    lock.lock();
    shared->done.push_back(std::move(item));
  }
}

}  // namespace sluice::controller
