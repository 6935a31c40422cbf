// A client without a GPU. It attaches, holds its mutex in a watcher thread, and follows the
// protocol of the board as a real client does. It obeys a word per line of stdin and answers a line
// to each.
//
//   fake_client SESSION PRIORITY DEVICE     DEVICE: a byte that fills the UUID
//   fake_client SESSION lease 0             takes a lease instead
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "shm/mapping.hpp"
#include "shm/messages.hpp"
#include "shm/policy.hpp"
#include "shm/report.hpp"
#include "shm/session.hpp"
#include "shm/target.hpp"
#include "shm/view.hpp"

namespace {

using namespace sluice::shm;

constexpr int kTickMs = 5;
constexpr int kAskMs = 2000;
constexpr std::size_t kMiB = 1024 * 1024;

class FakeClient {
 public:
  FakeClient(std::string session, std::uint32_t priority, int device)
      : session_(std::move(session)), path_(socket_path(session_)) {
    request_.priority = priority;
    request_.policy = kDefaultPolicy.pack();
    request_.device_uuid.fill(static_cast<std::uint8_t>(device));
    std::strcpy(request_.device_name.data(), "Fake GPU");
  }

  /// Attaches. The reply says whether the client got a slot.
  Reply attach() {
    Reply reply;
    fd_ = connect_controller(path_.c_str());
    if (fd_ < 0 || ask(fd_, request_, reply, kAskMs) != 0) return Reply{};
    if (reply.status != ReplyStatus::kOk) return reply;
    mapping_ =
        std::make_unique<BoardMapping>(BoardMapping::attach(session_, BoardMapping::Rights::kAny));
    request_.slot = reply.slot;
    request_.generation = reply.generation;
    request_.board_id = reply.board_id;
    report_.slot = reply.slot;
    report_.generation = reply.generation;
    begin_words(words_, on_board());
    wish(SlotState::kLive);
    return reply;
  }

  /// Removes the board if no controller is left to do so.
  void remove_board_if_last() { mapping_->remove_if_unused(); }

  void start_watcher() {
    std::thread([this] { watch(); }).detach();
    while (!live_.load()) std::this_thread::yield();
  }

  [[nodiscard]] int slot() const { return request_.slot; }
  BoardView view() { return BoardView(mapping_->board()); }
  /// A client that can only read the board, and reports to the node service.
  [[nodiscard]] bool reader() const { return !mapping_->writable(); }
  Slot& on_board() { return mapping_->board().slots[static_cast<std::size_t>(slot())]; }
  /// Of a reader.
  Slot& words() { return words_; }
  void wish(SlotState state) { words_.info.store(SlotInfo{state, 0, 0, 0}.pack()); }
  [[nodiscard]] SlotState state() { return SlotInfo::unpack(on_board().info.load()).state; }
  /// Drops the connection and never asks for another.
  void disconnect() {
    reconnects_.store(false);
    shutdown(fd_, SHUT_RDWR);
  }

 private:
  void watch() {
    BoardView board = view();
    while (!reader() && !on_board().alive.take()) {
    }
    if (!reader()) go_live(board, slot());
    for (;;) {
      pollfd hang_up{fd_, POLLIN, 0};
      poll(&hang_up, fd_ < 0 ? 0 : 1, kTickMs);
      if (fd_ >= 0 && hang_up.revents != 0) {
        close(fd_);
        fd_ = -1;
      }
      if (fd_ < 0 && reconnects_.load()) attach_again();
      if (reader()) {
        fill_report(report_, words_);
        static_cast<void>(tell(fd_, report_));
        live_.store(live_.load() || state() == SlotState::kLive);
        continue;
      }
      live_.store(true);
      on_board().watcher_beat_ns.store(sluice::base::monotonic_ns());
      for_each_other(board.used().load(), slot(), [&](int other) { mark_dead(board, other); });
      tend_gate(board, slot());
      tend_readers(board, slot());
      settle_outranked(board, slot());
    }
  }

  void attach_again() {
    Reply reply;
    const int fd = connect_controller(path_.c_str());
    if (fd < 0) return;
    if (ask(fd, request_, reply, kAskMs) == 0 && reply.status == ReplyStatus::kOk) {
      fd_ = fd;
    } else {
      close(fd);
    }
  }

  std::string session_;
  std::string path_;
  Request request_;
  Report report_;
  Slot words_;
  std::unique_ptr<BoardMapping> mapping_;
  std::atomic<int> fd_{-1};
  std::atomic<bool> live_{false};
  std::atomic<bool> reconnects_{true};
};

/// Memory that the kernel tears down after a SIGKILL, before a pidfd reports the death.
void touch_memory(std::size_t mib) {
  void* memory = mmap(nullptr, mib * kMiB, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  madvise(memory, mib * kMiB, MADV_NOHUGEPAGE);  // small pages take longest to tear down
  for (std::size_t offset = 0; offset < mib * kMiB; offset += 4096) {
    static_cast<volatile char*>(memory)[offset] = 1;
  }
}

void obey(FakeClient& client, const std::string& word) {
  BoardView board = client.view();
  std::uint64_t epoch = 0;
  if (client.reader() && (word == "begin" || word == "end")) {
    client.words().job.fetch_add(1);
  } else if (client.reader() && word == "leave") {
    client.wish(SlotState::kLeaving);
    while (client.state() != SlotState::kLeaving) std::this_thread::yield();
  } else if (word == "obey") {
    std::cin >> epoch;
    client.words().memory.done.store(epoch);
  } else if (word == "waive") {
    std::size_t holder = 0;
    std::cin >> holder;
    client.words().waived[holder].store(client.view().job(static_cast<int>(holder)).load());
  } else if (word == "begin") {
    begin_job(board, client.slot());
  } else if (word == "end") {
    end_job(board, client.slot());
  } else if (word == "touch") {
    std::size_t mib = 0;
    std::cin >> mib;
    touch_memory(mib);
  } else if (word == "leave") {
    leave(board, client.slot());
    client.remove_board_if_last();
    std::cout << "ok" << std::endl;
    std::exit(0);
  } else if (word == "exec") {
    std::cout << "ok" << std::endl;
    execlp("sleep", "sleep", "600", nullptr);
  } else if (word == "close_files") {
    closefrom(3);
  } else if (word == "disconnect") {
    client.disconnect();
  } else {
    std::abort();
  }
  std::cout << "ok" << std::endl;
}

/// Does as `sluice exec` does: asks, closes the connection and becomes another program.
int take_lease(const char* session) {
  Request request;
  request.kind = RequestKind::kLease;
  Reply reply;
  const int fd = connect_controller(socket_path(session).c_str());
  if (ask(fd, request, reply, kAskMs) != 0 || reply.status != ReplyStatus::kOk) return 1;
  std::cout << "leased" << std::endl;
  return execlp("sleep", "sleep", "600", nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  if (std::string(argv[2]) == "lease") return take_lease(argv[1]);
  FakeClient client(argv[1], static_cast<std::uint32_t>(std::atoi(argv[2])), std::atoi(argv[3]));
  const Reply reply = client.attach();
  if (reply.status != ReplyStatus::kOk) {
    std::cout << "refused " << static_cast<int>(reply.status) << " " << reply.text.data()
              << std::endl;
    return 1;
  }
  client.start_watcher();
  std::cout << "attached " << reply.slot << " " << reply.generation << " " << reply.board_id << " "
            << reply.text.data() << std::endl;
  for (std::string word; std::cin >> word;) obey(client, word);
  std::_Exit(0);
}
