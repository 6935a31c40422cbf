#include "intercept/client/interposer.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "intercept/client/log.hpp"
#include "intercept/client/no_cancel.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/unhooked.hpp"
#include "intercept/trace/trace.hpp"
#include "shm/messages.hpp"
#include "shm/session.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {

constinit std::atomic<Client*> g_only_client{nullptr};
constinit std::atomic<bool> g_forked_child{false};
constinit std::atomic<bool> g_leaving{false};

namespace {

constexpr int kAttachTimeoutMs = 1000;

CUdevice device_of(CUstream stream) noexcept {
  CUdevice device = -1;
  CUcontext context = nullptr;
  const bool named = stream != nullptr && stream != CU_STREAM_LEGACY &&
                     stream != CU_STREAM_PER_THREAD && driver().cuStreamGetCtx != nullptr;
  if (named && driver().cuStreamGetCtx(stream, &context) == CUDA_SUCCESS &&
      driver().cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {
    driver().cuCtxGetDevice(&device);
    driver().cuCtxPopCurrent_v2(&context);
  } else if (driver().cuCtxGetDevice != nullptr) {
    driver().cuCtxGetDevice(&device);
  }
  return device;
}

}  // namespace

Interposer& Interposer::instance() noexcept {
  static Interposer& process = *std::unique_ptr<Interposer>(new Interposer).release();
  return process;
}

Interposer::Interposer() noexcept
    : pid_(getpid()),
      config_(read_config()),
      socket_path_(shm::socket_path(config_.session)),
      watcher_(socket_path_) {
  std::atexit([] { leave_at_exit(); });
  pthread_atfork(nullptr, nullptr, [] { detach_child(); });
}

void Interposer::note_device(CUdevice device) noexcept {
  const std::uint64_t mask = std::uint64_t{1} << (static_cast<unsigned>(device) & 63U);
  const std::uint64_t seen = devices_seen_.fetch_or(mask) | mask;
  if ((seen & (seen - 1)) != 0) g_only_client.store(nullptr);
}

Client* Interposer::find(CUdevice device) noexcept {
  Client* found = nullptr;
  for_each_client([&](Client& client) {
    if (client.device() == device) found = &client;
  });
  return found;
}

Client* Interposer::client_of(CUstream stream) noexcept {
  if (in_forked_child()) {
    report_forked_child();
    return nullptr;
  }
  // Without hope of a seat, not even the device is asked for.
  const bool may_attach = watcher_.controller_in_sight() && !refused_.load() && !g_leaving.load();
  if (!may_attach && client_count_.load(std::memory_order_acquire) == 0) return nullptr;
  const CUdevice device = device_of(stream);
  if (device < 0) return nullptr;
  Client* client = find(device);
  return client != nullptr || !may_attach ? client : attach(device);
}

/// CUDA does not work in the child of a process that used it; but one that only said where its jobs
/// are, and used no GPU, may well fork workers that do.
void Interposer::report_forked_child() noexcept {
  static constinit std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  Line(Level::kWarn) << "forked from a process under Sluice without exec: this one runs ungated";
}

void Interposer::refuse(std::string_view why) noexcept {
  if (!warned_) {
    Line(Level::kWarn) << "session " << config_.session << ": " << why << "; running ungated";
  }
  warned_ = true;
}

bool Interposer::map_board(std::uint64_t board_id) noexcept {
  try {
    if (!mapping_) mapping_ = shm::BoardMapping::attach(config_.session);
  } catch (const std::exception& error) {
    refuse(error.what());
    return false;
  }
  if (mapping_->board().board_id.load() == board_id) return true;
  refuse("the board was replaced while this process lived");
  return false;
}

std::optional<Seat> Interposer::ask_for_seat(CUdevice device, int& connection) noexcept {
  connection = shm::connect_controller(socket_path_.c_str());
  if (connection < 0) {
    refuse("no controller (start one: sluice controller)");
    return std::nullopt;
  }
  shm::Request request;
  request.priority = config_.priority;
  request.policy = config_.policy.pack();
  CUuuid uuid{};
  driver().cuDeviceGetUuid_v2(&uuid, device);
  std::memcpy(request.device_uuid.data(), uuid.bytes, sizeof(uuid.bytes));
  driver().cuDeviceGetName(request.device_name.data(), static_cast<int>(request.device_name.size()),
                           device);
  config_.name.copy(request.name.data(), request.name.size() - 1);
  if (mapping_) request.board_id = mapping_->board().board_id.load();
  shm::Reply reply;
  const int result = shm::ask(connection, request, reply, kAttachTimeoutMs);
  if (result == -ETIMEDOUT) {
    refuse("the controller does not answer");
    return std::nullopt;  // the connection stays open: an answer on it will show that it lives
  }
  if (result != 0) {
    refuse("the controller hung up");
  } else if (reply.status != shm::ReplyStatus::kOk) {
    refuse(reply.text.data());
    refused_ = reply.status != shm::ReplyStatus::kSessionFull;
  } else if (reply.slot >= 0 && reply.slot < shm::kSlots && map_board(reply.board_id)) {
    return Seat{mapping_->board(), reply.slot, reply.generation};
  }
  close(connection);
  connection = -1;
  return std::nullopt;
}

Client* Interposer::attach(CUdevice device) noexcept {
  const NoCancel whole;
  const std::lock_guard lock(attach_mutex_);
  if (Client* client = find(device)) return client;
  if (refused_.load()) return nullptr;
  int connection = -1;
  if (client_count_.load() == kMaxClients) {
    refuse("more devices than this process may use");
    refused_ = true;
    return nullptr;
  }
  if (const char* missing = missing_call()) {
    refuse(std::string("the driver has no ") + missing + " (CUDA 12.0 or later is needed)");
    refused_ = true;
    return nullptr;
  }
  const std::optional<Seat> seat = ask_for_seat(device, connection);
  if (!seat) {
    watcher_.look_for_controller(connection);
    return nullptr;
  }
  auto client = std::make_unique<Client>(*seat, device, config_.policy);
  adopt_counts(*client);
  if (!watcher_.take(*client, connection)) {
    refuse("this process has no thread left for the watcher");
    refused_ = true;
    close(connection);
    static_cast<void>(client.release());  // the watcher may still hold it
    return nullptr;
  }
  Client* attached = client.get();
  if (!config_.trace.empty() && client_count_.load() == 0) {
    Trace::start(config_.trace, config_.trace_limit, *attached);
  }
  note_device(device);
  publish(std::move(client));
  Line(Level::kInfo) << "attached: session " << config_.session << ", slot " << seat->slot
                     << ", priority " << static_cast<int>(config_.priority) << ", policy "
                     << shm::to_string(attached->policy());
  return attached;
}

void Interposer::publish(std::unique_ptr<Client> client) noexcept {
  const std::lock_guard lock(jobs_mutex_);  // a job that is open already is open here too
  if (!open_jobs_.empty()) client->jobs().begin();
  const int count = client_count_.load();
  Client* only = client.get();
  clients_[static_cast<std::size_t>(count)] = std::move(client);
  client_count_.store(count + 1, std::memory_order_release);
  g_only_client.store(count == 0 ? only : nullptr);
  if (g_leaving.load()) leave(*only);  // another thread is at exit() and has not seen this client
  // After the store: note_device() may be learning of a second device right now.
  if (!std::has_single_bit(devices_seen_.load())) g_only_client.store(nullptr);
}

void Interposer::count_unattached(Entry entry) noexcept {
  if (in_forked_child()) return;
  unattached_[static_cast<std::size_t>(entry)].fetch_add(1, std::memory_order_relaxed);
}

void Interposer::adopt_counts(Client& client) noexcept {
  for (std::size_t entry = 0; entry < unattached_.size(); ++entry) {
    client.slot().entries[entry][shm::Count::kBypassUnattached].fetch_add(
        unattached_[entry].exchange(0));
  }
  const std::lock_guard lock(unhooked_mutex_);
  client.slot().unhooked_name = unhooked_name_;
  client.slot().unhooked_lookups.store(unhooked_asked_);
}

void Interposer::note_unhooked(std::string_view name) noexcept {
  const std::lock_guard lock(unhooked_mutex_);
  ++unhooked_asked_;
  unhooked_name_.fill('\0');
  name.copy(unhooked_name_.data(), unhooked_name_.size() - 1);
  for_each_client([&](Client& client) {
    client.slot().unhooked_name = unhooked_name_;
    client.slot().unhooked_lookups.store(unhooked_asked_);
  });
}

bool Interposer::attached() noexcept {
  bool attached = false;
  if (g_forked_child.load()) return attached;
  for_each_client([&](const Client& client) { attached = attached || client.obeys(); });
  return attached;
}

std::uint64_t Interposer::begin_job(std::uint64_t announced) noexcept {
  if (in_forked_child()) return 0;
  g_explicit_jobs.store(true);
  client_of(nullptr);  // attach before the first launch where the thread has a context
  const std::lock_guard lock(jobs_mutex_);
  call_off_late();  // those below may have waived it
  const Announcements::Taken taken = announcements_.take(announced);
  const std::uint64_t job = taken == Announcements::Taken::kUnknown ? ++last_job_ : announced;
  const bool opens = open_jobs_.empty();
  open_jobs_.insert(job);  // an announced one whose gates are closed is there already
  for_each_client([opens](Client& client) {
    opens ? client.jobs().begin() : client.jobs().announced_begins();
  });
  if (taken != Announcements::Taken::kUnknown) end_slack();
  return job;
}

void Interposer::end_job(std::uint64_t job) noexcept {
  if (in_forked_child()) return;
  const std::lock_guard lock(jobs_mutex_);
  close_job(job);
  say_if_none_has_begun();
}

void Interposer::close_job(std::uint64_t job) noexcept {
  if (open_jobs_.erase(job) == 0 || !open_jobs_.empty()) return;
  for_each_client([](Client& client) { client.jobs().end(); });
}

void Interposer::leave(Client& client) noexcept {
  client.set_obeys(false);
  shm::BoardView view(client.seat().board);
  shm::leave(view, client.seat().slot);
  client.slot().slack_ns.store(shm::kUnlimitedSlack);
}

void Interposer::leave_at_exit() noexcept {
  Interposer& process = instance();
  // A child made past pthread_atfork (a bare clone) is not known as one: the slot is its parent's.
  if (in_forked_child() || getpid() != process.pid_) return;
  g_leaving.store(true);
  process.for_each_client([](Client& client) { leave(client); });
  forbid_queries_for_good();
  // With the controller gone, the last of the session puts out the light.
  if (process.mapping_ && process.mapping_->remove_if_unused(process.socket_path_)) {
    base::remove_runtime_dir_if_empty();
  }
}

/// Whether the parent was no client and had no thread of ours, so that a forked child may become a
/// client itself. A lock that another thread of the parent held is held for ever in the child.
bool Interposer::is_unused() noexcept {
  if (client_count_.load() != 0 || watcher_.is_running() || announce_thread_.load() || mapping_) {
    return false;
  }
  bool free = true;
  for (std::mutex* mutex : {&attach_mutex_, &jobs_mutex_, &unhooked_mutex_}) {
    if (mutex->try_lock()) {
      mutex->unlock();
    } else {
      free = false;
    }
  }
  return free;
}

/// Forgets the parent: its launches, its jobs and its devices.
void Interposer::start_anew_in_child() noexcept {
  pid_ = getpid();
  open_jobs_.clear();
  g_explicit_jobs.store(false);
  devices_seen_.store(0);
  for (auto& count : unattached_) count.store(0);
}

/// In a forked child: no slot, no file descriptor, no thread; the parent's memory is not ours.
void Interposer::detach_child() noexcept {
  forget_queries_in_child();
  if (!g_forked_child.load() && instance().is_unused()) return instance().start_anew_in_child();
  g_forked_child.store(true);
  g_only_client.store(nullptr);
  g_trace.store(nullptr);
  Interposer& process = instance();
  process.watcher_.abandon_in_child();
  if (process.mapping_) process.mapping_->abandon_in_child();
}

bool is_work_entry(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 13> kWork{"cuLaunch",
                                                   "cuLaunchGrid",
                                                   "cuLaunchGridAsync",
                                                   "cuLaunchKernel",
                                                   "cuLaunchKernelEx",
                                                   "cuLaunchCooperativeKernel",
                                                   "cuGraphLaunch",
                                                   "cuLaunchCooperativeKernelMultiDevice",
                                                   "cuLaunchKernel_ptsz",
                                                   "cuLaunchKernelEx_ptsz",
                                                   "cuLaunchCooperativeKernel_ptsz",
                                                   "cuGraphLaunch_ptsz",
                                                   "cuLaunchCooperativeKernelMultiDevice_ptsz"};
  return std::find(kWork.begin(), kWork.end(), name) != kWork.end();
}

void note_if_unhooked_work(std::string_view name) noexcept {
  if (is_work_entry(name)) Interposer::instance().note_unhooked(name);
}

}  // namespace sluice::intercept
