#include "intercept/client/interposer.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>

#include "base/session.hpp"
#include "intercept/driver/contexts.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/log.hpp"
#include "intercept/driver/threads.hpp"
#include "shm/session.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {

/// Two threads may both construct an interposer, and one of the two is dropped. A lock would be
/// worse: a forked child could find it held.
Interposer& Interposer::instance() {
  if (Interposer* const known = existing()) return *known;
  std::unique_ptr<Interposer> made(new Interposer);
  g_process.owner.store(getpid());
  Interposer* before = nullptr;
  if (!g_process.interposer.compare_exchange_strong(before, made.get())) return *before;
  install_handlers();
  return *made.release();
}

Interposer::Interposer()
    : config_(read_config()),
      socket_path_(shm::socket_path(config_.session)),
      announcer_("sluice-announce", [this] { return jobs_.step(); }),
      keeper_("sluice-keep", [this] { return keep(); }),
      jobs_(clients_, announcer_),
      watcher_(socket_path_, jobs_) {
  const std::uint64_t own = g_process.own_target.load();
  if (own != shm::kKeepTarget) target_.store(own);
}

void Interposer::install_handlers() noexcept {
  if (g_process.exit_handlers_installed.exchange(true)) return;
  std::atexit([] { leave_at_exit(); });
  pthread_atfork([] { LoadedLibraries::before_fork(); }, [] { LoadedLibraries::after_fork(); },
                 [] { detach_child(); });
}

Stream* Interposer::stream_of(CUstream stream, bool attach_now) {
  // If no attach can succeed now, skip the driver calls.
  if (clients_.count() == 0 && (!attach_now || !may_attach())) return nullptr;
  const bool of_context = is_default_stream(stream);
  CUcontext context = of_context ? current_context() : nullptr;
  const Stream::Key key = Streams::key_of(stream, context);
  Stream* const known = streams_.find(key);
  if (known != nullptr || !attach_now) return known;
  if (!of_context) context = context_of(stream);
  const CUdevice device = device_of(context);
  if (device < 0) return nullptr;
  Client* client = clients_.of(device);
  if (client == nullptr) client = attach(device);
  if (client == nullptr) return nullptr;
  client->memory().prepare();
  const ContextId id = identify(context);
  return streams_.add(key, id, client->event_pools().of(id), *client, client->pacer());
}

void Interposer::end_streams(Stream* taken, bool gone) noexcept {
  for (Stream* stream = taken; stream != nullptr; stream = stream->next) {
    stream->client->jobs().forget(*stream);
    stream->pacer->end(*stream, gone);
  }
  streams_.reuse(taken);
}

/// A thread that ends a stream or a context may be cancelled in the driver's call, or block there
/// for long. Then the job of the stream must end all the same.
void Interposer::look_at_ending_streams() noexcept {
  constexpr std::uint64_t kLongNs = 50'000'000;
  end_streams(streams_.take_lost(), true);
  streams_.for_each_taken([now = base::monotonic_ns()](Stream& stream) {
    if (stream.given_up || now < stream.taken_ns + kLongNs) return;
    stream.given_up = true;
    stream.client->jobs().forget(stream);
  });
}

void Interposer::put_streams_back(Stream* taken) noexcept {
  const auto revive = [](Stream& stream) { stream.client->jobs().touch(stream); };
  end_streams(streams_.put_back(taken, revive), false);
}

void Interposer::context_ended(const ContextId& context) noexcept {
  held_memory_.context_ended(context);
  clients_.for_each([&](Client& client) {
    client.event_pools().context_ended(context);
    client.memory().context_ended(context);
  });
  end_streams(streams_.take_out(context), true);
}

Client* Interposer::client_here(bool attach_now) noexcept {
  return in_forked_child() ? nullptr : client_on(current_device(), attach_now);
}

Client* Interposer::client_on(CUdevice device, bool attach_now) noexcept {
  if (in_forked_child() || device < 0) return nullptr;
  Client* const known = clients_.of(device);
  return known == nullptr && attach_now ? attach(device) : known;
}

Client* Interposer::client_that_waits() noexcept {
  return clients_.count() == 1 ? clients_.only() : client_here(false);
}

Client* Interposer::client_of_memory() noexcept {
  Client* found = client_here(true);
  clients_.for_each([&found](Client& client) {
    if (found == nullptr) found = &client;
  });
  return found;
}

Client* Interposer::client_of(CUcontext context) noexcept {
  if (clients_.count() == 1) return clients_.only();
  return clients_.count() == 0 ? nullptr : clients_.of(device_of(context));
}

/// Warns once. CUDA does not work in the child of a process that used it.
void Interposer::report_forked_child() noexcept {
  if (g_process.said_forked_child.exchange(true)) return;
  Line(Level::kWarn) << "forked from a process under Sluice without exec: this one runs ungated";
}

/// In a thread of its own, because the lock of the loader, or of the kernel module, may be held for
/// long.
Worker::Sleep Interposer::keep() noexcept {
  constexpr std::uint64_t kPeriodNs = 1'000'000'000;
  if (g_process.leaving.load()) return {kPeriodNs, true};
  clients_.for_each([](Client& client) {
    client.relieve_poller(base::monotonic_ns());
    client.slices().apply();
    client.turns().start_if_due();
  });
  const std::uint64_t now = base::monotonic_ns();
  if (now < next_look_ns_) return {next_look_ns_ - now, true};
  next_look_ns_ = now + kPeriodNs;
  // A stream may have come to what it frees.
  clients_.for_each([this](Client& client) {
    const DriverQuery query(primary_context(client.device()));
    if (query) refresh_pools();
  });
  if (loaded_.look()) {
    show_unhooked();
    const auto name = g_process.unhooked.name();
    Line(Level::kWarn) << "some launches of this process may pass by the gate: " << name.data()
                       << (gives_work(name.data()) ? " has no hook"
                                                   : " was opened with RTLD_DEEPBIND or dlmopen");
  }
  return {kPeriodNs, true};
}

void Interposer::refresh_pools(CUdevice of) noexcept { held_memory_.ask_pools(of, &reserved_by); }

/// The count may be on its way to a slot, or be in that of another device: then the launch stays
/// counted as unattached, too.
void Interposer::uncount_unattached(Client& client, Entry entry) noexcept {
  shm::Word& slot = client.counter(entry, shm::Count::kBypassUnattached);
  for (shm::Word* const word : {&unattached_count(entry), &slot}) {
    std::uint64_t count = word->load();
    while (count != 0) {
      if (word->compare_exchange_weak(count, count - 1)) return;
    }
  }
}

void Interposer::show_unhooked() noexcept {
  if (in_forked_child()) return;
  clients_.for_each([](Client& client) { g_process.unhooked.show_in(client.slot()); });
}

void Interposer::set_target(shm::Target target) noexcept {
  g_process.own_target.store(target.pack());
  target_.store(target.pack());
  clients_.for_each([&](Client& client) {
    // A reader holds nobody, so its target changes nothing.
    if (!client.seat().reader()) client.slot().requested_target.store(target.pack());
    client.jobs().take_target();
  });
}

bool Interposer::attached() noexcept {
  bool attached = false;
  if (in_forked_child()) return attached;
  clients_.for_each([&](const Client& client) { attached = attached || client.obeys(); });
  return attached;
}

void Interposer::leave(Client& client) noexcept {
  client.set_obeys(false);
  const Seat& seat = client.seat();
  if (seat.reader()) {
    client.wish(shm::SlotState::kLeaving);
    // The driver may wait for what is queued behind the gate, when the watcher does not run any
    // more.
    constexpr std::uint64_t kReportedNs = 100'000'000;
    nap_while([&] { return client.gate_closed(); }, kReportedNs);
    return;
  }
  shm::BoardView view(*seat.writable);
  shm::leave(view, seat.slot);
  client.slot().slack_ns.store(shm::kUnlimitedSlack);
}

void Interposer::leave_at_exit() noexcept {
  Interposer* const self = existing();
  if (self == nullptr || in_forked_child()) return;
  g_process.leaving.store(true);
  self->clients_.for_each([](Client& client) { leave(client); });
  forbid_queries_for_good();
  // With the controller gone, the last client of the session removes the board and the socket.
  if (self->mapping_ && self->mapping_->remove_if_unused(self->socket_path_)) {
    base::remove_runtime_dir_if_empty();
  }
}

/// Runs in a forked child, which has neither the slot, the file descriptors nor the threads of the
/// parent. If the parent had no slot, the child may attach on its own.
void Interposer::detach_child() noexcept {
  Interposer* const parents = g_process.interposer.exchange(nullptr);
  t_thread_id = 0;
  g_process.forks.store(0);
  g_process.looks_at_libraries.store(false);
  g_process.trace.store(nullptr);
  g_process.wait_file.store(nullptr);
  g_process.forget_remembered();
  forget_queries_in_child();
  if (parents == nullptr) return;
  parents->watcher_.abandon_in_child();
  if (parents->mapping_) parents->mapping_->abandon_in_child();
  if (parents->clients_.count() == 0) {
    g_process.owner.store(0);
    g_process.explicit_jobs.store(false);
    return;
  }
  g_process.forked_child.store(true);
  g_process.interposer.store(parents);
}

}  // namespace sluice::intercept
