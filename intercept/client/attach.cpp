// How a process gets its seats: one for each device that it uses, at its first launch there.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "intercept/client/interposer.hpp"
#include "intercept/driver/log.hpp"
#include "intercept/driver/threads.hpp"
#include "intercept/jobs/wait_file.hpp"
#include "intercept/trace/trace.hpp"
#include "shm/give.hpp"
#include "shm/messages.hpp"
#include "shm/no_controller.hpp"
#include "shm/report.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {

namespace {

constexpr int kAttachTimeoutMs = 1000;
/// A launch waits this long at most. Later the watcher looks for the controller.
constexpr int kQueueMs = 200;

shm::TraceHeader trace_header_of(const Client& client) {
  shm::TraceHeader header{};
  const shm::Slot& slot = client.shared();
  const shm::Device& device =
      client.seat().board.devices[shm::SlotInfo::unpack(slot.info.load()).device];
  header.magic = shm::kTraceMagic;
  header.version = shm::kTraceVersion;
  header.record_size = sizeof(shm::TraceRecord);
  header.pid = static_cast<std::uint32_t>(getpid());
  header.priority = client.priority();
  header.begin_monotonic_ns = base::monotonic_ns();
  header.begin_realtime_ns = base::clock_ns(CLOCK_REALTIME);
  put_text(header.policy, shm::to_string(client.policy()));
  put_text(header.command, shm::text_in(slot.command));
  put_text(header.name, shm::text_in(slot.name));
  header.device_uuid = device.uuid;
  header.time_scale = client.time_scale();
  if (client.simulated()) {
    header.simulated = 1;
    header.exec_source = static_cast<std::uint32_t>(shm::ExecSource::kSimulator);
  }
  return header;
}

std::uint32_t mps_of(shm::MpsWord mps, CUdevice device) noexcept {
  if (!is_under_mps(device)) return shm::MpsWord{shm::MpsWord::Mode::kNone, 0, 0, 0}.pack();
  int sms = 0;
  driver().cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  mps.sms = static_cast<std::uint32_t>(std::max(sms, 0));
  return mps.pack();
}

}  // namespace

bool Interposer::may_attach() const noexcept {
  return watcher_.controller_in_sight() && !refused_.load() && !g_process.leaving.load();
}

void Interposer::refuse(std::string_view why) noexcept {
  if (warned_.exchange(true)) return;
  Line(Level::kWarn) << "session " << config_.session << ": " << why << "; running ungated";
}

void Interposer::refuse_for(int error) noexcept {
  const bool said =
      if_memory_lasts([&] { refuse(shm::why_no_controller(error, config_.session)); });
  if (!said) refuse("there is no memory for it");
}

bool Interposer::map_board(std::uint64_t board_id) noexcept {
  try {
    if (!mapping_)
      mapping_ = shm::BoardMapping::attach(config_.session, shm::BoardMapping::Rights::kAny);
  } catch (const std::exception& error) {
    refuse(error.what());
    return false;
  }
  if (mapping_->board().board_id.load() == board_id) return true;
  refuse("the board was replaced while this process lived");
  return false;
}

std::optional<Seat> Interposer::ask_for_seat(CUdevice device, int& connection) noexcept {
  connection = shm::connect_patiently(socket_path_.c_str(), kQueueMs);
  if (connection < 0) {
    refuse_for(-connection);
    return std::nullopt;
  }
  shm::Request request;
  request.priority = config_.priority;
  request.policy = config_.policy.pack();
  request.target = target_.load();
  request.slice = config_.slice;
  request.memory = config_.memory;
  request.weight = config_.weight;
  if (config_.give != shm::kDefaultGive) request.give = shm::say_give(config_.give);
  request.mps = mps_of(config_.mps, device);
  CUuuid uuid{};
  driver().cuDeviceGetUuid_v2(&uuid, device);
  std::memcpy(request.device_uuid.data(), uuid.bytes, sizeof(uuid.bytes));
  driver().cuDeviceGetName(request.device_name.data(), static_cast<int>(request.device_name.size()),
                           device);
  config_.name.copy(request.name.data(), request.name.size() - 1);
  config_.label.copy(request.label.data(), request.label.size() - 1);
  if (mapping_) request.board_id = mapping_->board().board_id.load();
  shm::Reply reply;
  const int result = shm::ask(connection, request, reply, kAttachTimeoutMs);
  if (result == -ETIMEDOUT) {
    refuse_for(ETIMEDOUT);
    return std::nullopt;  // the connection stays open: a late answer shows that the controller
                          // lives
  }
  if (result != 0) {
    refuse_for(-result);
  } else if (reply.status != shm::ReplyStatus::kOk) {
    refuse(reply.text.data());
    refused_ = reply.status != shm::ReplyStatus::kSessionFull;
  } else if (reply.slot >= 0 && reply.slot < shm::kSlots && map_board(reply.board_id)) {
    if (reply.text.front() != '\0') {
      Line(Level::kWarn) << "session " << config_.session << ": " << reply.text.data();
    }
    const std::optional<Seat> seat = take_seat(reply.slot, reply.generation);
    if (seat) return seat;
  }
  close(connection);
  connection = -1;
  return std::nullopt;
}

/// The site policy may have changed between the answers of the service.
std::optional<Seat> Interposer::take_seat(int slot, std::uint32_t generation) noexcept {
  shm::Board& board = mapping_->board();
  shm::Slot& shared = board.slots[static_cast<std::size_t>(slot)];
  const bool reader = !mapping_->writable();
  if (reader != (shared.reader.load() != 0)) {
    refuse("the site policy has changed while this process attached");
    return std::nullopt;
  }
  if (!reader) return Seat{board, &board, shared, slot, generation};
  shm::Slot* const words = new (std::nothrow) shm::Slot{};  // like the client, for good
  if (words == nullptr) {
    refuse("there is no memory for it");
    return std::nullopt;
  }
  shm::begin_words(*words, shared);
  return Seat{board, nullptr, *words, slot, generation};
}

/// Threads are started and libraries are loaded outside the lock: a thread that holds the loader's
/// lock (in the constructor of a library) may be waiting to attach.
Client* Interposer::attach(CUdevice device) noexcept {
  const NoCancel whole;
  if (!may_attach()) return nullptr;
  if (!may_be_gated()) {
    refused_ = true;
    return nullptr;
  }
  Client* const attached = attach_alone(device);
  if (attached != nullptr && wait_file_due_.exchange(false)) {
    const bool counts = if_memory_lasts([&] { WaitFile::start(config_.waits); });
    if (!counts) Line(Level::kWarn) << "waits are not counted: there is no memory for it";
  }
  if (attached == nullptr || !trace_due_.exchange(false)) return attached;
  const bool traced = if_memory_lasts(
      [&] { Trace::start(config_.trace, config_.trace_limit, trace_header_of(*attached)); });
  if (!traced) Line(Level::kWarn) << "no trace: there is no memory for it";
  return attached;
}

/// Whether the driver and the system have what a client needs.
bool Interposer::may_be_gated() noexcept {
  if (const char* missing = missing_call()) {
    if_memory_lasts([&] {
      refuse(std::string("the driver has no ") + missing + " (CUDA 12.0 or later is needed)");
    });
    return false;
  }
  Poller* const poller = next_poller();
  if (watcher_.start() && (poller == nullptr || poller->worker.wake())) return true;
  refuse("this process cannot start another thread");
  return false;
}

Poller* Interposer::next_poller() noexcept {
  const auto index = static_cast<std::size_t>(clients_.count());
  return index < pollers_.size() ? &pollers_[index] : nullptr;
}

Client* Interposer::attach_alone(CUdevice device) noexcept {
  const std::lock_guard lock(attach_mutex_);
  if (Client* client = clients_.of(device)) return client;
  if (!may_attach() || base::monotonic_ns() < next_attach_ns_) return nullptr;
  Client* attached = nullptr;
  if (!if_memory_lasts([&] { attached = attach_now(device); })) {
    refuse("there is no memory for it");
    constexpr std::uint64_t kPauseNs = 500'000'000;  // or each launch would take a seat for nothing
    next_attach_ns_ = base::monotonic_ns() + kPauseNs;
  }
  return attached;
}

Client* Interposer::attach_now(CUdevice device) {
  Poller* const poller = next_poller();
  if (poller == nullptr) {
    refuse("more devices than this process may use");
    refused_ = true;
    return nullptr;
  }
  int connection = -1;
  const std::optional<Seat> seat = ask_for_seat(device, connection);
  if (!seat) {
    watcher_.look_for_controller(connection);
    return nullptr;
  }
  void* const view = mapping_->another_view();
  std::unique_ptr<Client> client;
  const bool made =
      view != nullptr && if_memory_lasts([&] {
        client = std::make_unique<Client>(
            *seat, device, config_.policy, view,
            Client::Shared{streams_, poller->worker, announcer_, keeper_, config_.predict,
                           config_.gpu_time, [] { instance().look_at_ending_streams(); }});
      });
  if (!made) {
    close(connection);  // which gives the seat back
    if (view != nullptr) munmap(view, sizeof(shm::Board));
    throw std::bad_alloc();
  }
  adopt_counts(*client);
  watcher_.take(*client, connection);
  Client* const attached = client.get();
  held_memory_.show_in(*attached);
  jobs_.add(std::move(client));
  poller->client.store(attached);
  poller->worker.wake();
  // Another thread may have set a target that the request did not contain.
  if (!seat->reader()) attached->slot().requested_target.store(target_.load());
  attached->jobs().take_target();
  if (g_process.leaving.load())
    leave(*attached);  // another thread is inside exit() and has not seen this client
  keeper_.wake();
  attached->warn_of_vain_limit(config_.memory);
  Line(Level::kInfo) << "attached: session " << config_.session << ", slot " << seat->slot
                     << ", priority " << static_cast<int>(attached->priority()) << ", policy "
                     << shm::to_string(attached->policy());
  return attached;
}

void Interposer::adopt_counts(Client& client) noexcept {
  for (std::size_t entry = 0; entry < unattached_.size(); ++entry) {
    client.slot().entries[entry][shm::Count::kBypassUnattached].fetch_add(
        unattached_[entry][shm::Count::kBypassUnattached].exchange(0));
  }
  g_process.unhooked.show_in(client.slot());
}

}  // namespace sluice::intercept
