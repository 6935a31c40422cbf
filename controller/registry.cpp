#include "controller/registry.hpp"

#include <spdlog/spdlog.h>

#include <bit>
#include <optional>
#include <utility>

#include "base/clock.hpp"
#include "base/node_service.hpp"
#include "controller/memory_limits.hpp"
#include "controller/readers.hpp"
#include "controller/repair.hpp"
#include "controller/settings.hpp"
#include "shm/labels.hpp"
#include "shm/memory.hpp"
#include "shm/policy.hpp"
#include "shm/target_counts.hpp"

namespace sluice::controller {
namespace {

using shm::Reply;
using shm::ReplyStatus;
using shm::Request;
using shm::RequestKind;
using shm::SlotInfo;
using shm::SlotState;

template <std::size_t kSize>
std::string_view text_of(const std::array<char, kSize>& field) {
  const std::string_view all(field.data(), field.size());
  return all.substr(0, all.find('\0'));
}

/// The fault in the values of a request; empty if there is none.
std::string fault_of(const Request& request) {
  switch (request.kind) {
    case RequestKind::kLease:
    case RequestKind::kBoard:
    case RequestKind::kInspect:
      return {};
    case RequestKind::kReport:
      return "a report has another size";
    default:
      break;
  }
  const bool sets = request.kind == RequestKind::kSet;
  if (!sets && request.kind != RequestKind::kAttach) return "unknown request";
  if (request.slot < (sets ? 0 : -1) || request.slot >= shm::kSlots) {
    return "slot " + std::to_string(request.slot) + " does not exist";
  }
  if (std::string fault = fault_of_settings(request); !fault.empty()) return fault;
  if (!sets) return shm::check_labels(std::string(text_of(request.label)));
  return {};
}

void clear_counters(shm::Slot& slot) {
  for (shm::EntryCounters& entry : slot.entries) {
    for (shm::Word& word : entry.words) word.store(0);
  }
}

/// Clears the fields that the owner writes, except the job counter: `waived` identifies jobs by it,
/// so it must never repeat.
void clear_owner_fields(shm::Slot& slot) {
  slot.waiters.store(0);  // a hint: killed waiters stay counted
  slot.closed_since_ns.store(0);
  slot.closed_ns.store(0);
  slot.slack_ns.store(shm::kUnlimitedSlack);
  slot.announced.store(0);
  slot.slack_until_ns.store(0);
  slot.early_hold_until_ns.store(0);
  slot.job_since_ns.store(0);
  slot.skipped_waits.store(0);
  slot.waited_for.store(0);
  slot.stalled_streams.store(0);
  slot.busy_ns.store(0);
  slot.slice_us.store(0);
  slot.slice_state.store(0);
  slot.gpu_share.store(0);
  slot.close_state.store(0);
  slot.close_low_us.store(0);
  slot.close_high_us.store(0);
  slot.turn.until_ns.store(0);
  slot.turn.used.store(0);
  slot.turn.takes.store(0);
  slot.turn.covered.store(0);
  slot.turn.connected.store(0);
  for (auto& number : slot.turn.arrived) number.store(0);
  slot.outranked.fetch_and(~shm::kTakesTurns);
  slot.sync_since_ns.store(0);
  slot.unhooked_lookups.store(0);
  slot.max_hold_opened.store(0);
  slot.watcher_beat_ns.store(0);
  slot.longest_launch_ns.store(0);
  slot.ungated_graph_ns.store(0);
  slot.unknown_launches.store(0);
  slot.predictions.store(0);
  slot.prediction_hits.store(0);
  slot.prediction_cost_ns.store(0);
  slot.target.store(0);
  slot.target_ns.store(0);
  slot.alone_ns.store(0);
  slot.target_jobs.store(0);
  slot.target_kept.store(0);
  slot.open_ns.store(0);
  slot.target_total_ns.store(0);
  shm::begin_target(slot);
  slot.gpu_ns.store(0);
  slot.gpu_bound_ns.store(0);
  slot.gives_known.store(0);
  slot.gives_closing.store(0);
  slot.gives_windows.store(0);
  slot.gives_open.store(0);
  for (shm::Word* word : {&slot.items, &slot.items_ns, &slot.items_waited_ns}) word->store(0);
  slot.target_state.store(0);
  slot.open_job.store(0);
  for (shm::Word& ns : slot.held_by_ns) ns.store(0);
  slot.job_times.clear();
  slot.steps.clear();
  shm::reset(slot.memory);  // a controller may have been killed before it released the slot
  store_text(slot.unhooked_name.data(), slot.unhooked_name.size(), "");
}

}  // namespace

Reply Registry::answer(Connection& from, const Request& request) {
  const Reply reply = decide(from, request);
  if (reply.status != ReplyStatus::kOk) {
    clients_.tally.refused.fetch_add(1);
    log_once(from, request, "refused", reply);
  } else if (reply.text.front() != '\0' && request.kind == RequestKind::kAttach) {
    log_once(from, request, "lowered", reply);
  }
  return reply;
}

void Registry::log_once(const Connection& from, const Request& request, const char* what,
                        const Reply& reply) {
  const pid_t pid = from.peer.process->pid();
  const bool names_priority =
      request.kind == RequestKind::kAttach ||
      (request.kind == RequestKind::kSet && request.priority != shm::kKeepPriority);
  // A refused client asks again ten times a second for as long as it runs.
  spdlog::log(logged_.warn_or_debug(pid), "{} pid {}: {} (uid {}{})", what, pid,
              printable(text_of(reply.text), reply.text.size()), from.peer.uid,
              names_priority ? ", asked for priority " + std::to_string(request.priority) : "");
}

Reply Registry::decide(Connection& from, const Request& request) {
  const std::string fault = fault_of(request);
  if (!fault.empty()) return refusal(ReplyStatus::kBadRequest, fault);
  // Another process may have its connection. The kernel describes only the one that connected.
  const ClientProcess& peer = *from.peer.process;
  if (peer.pid() > 0 && peer.ended()) {
    return refusal(ReplyStatus::kCannotWatch, "the process that connected has ended: not gated");
  }
  if (request.kind == RequestKind::kSet) return set(from, request);
  if (request.kind == RequestKind::kBoard || request.kind == RequestKind::kInspect) {
    return give_board(from, request.kind);
  }
  if (!peer.watchable()) {
    return refusal(ReplyStatus::kCannotWatch,
                   "the controller cannot see this process (another pid namespace?): not gated");
  }
  if (request.kind == RequestKind::kLease) return lease(from);
  // The board's times are of one clock: a holder of another would look dead, or never lapse.
  if (!has_our_clock(peer.pid())) {
    return refusal(ReplyStatus::kCannotWatch,
                   "this process is in a time namespace, with another clock than the controller: "
                   "not gated");
  }
  return request.slot < 0 ? attach(from, request) : attach_again(from, request);
}

Reply Registry::lease(const Connection& from) {
  // The node service runs anyway, and has no room for a lease of every process.
  if (session_ != base::kNodeSession && !leases_.add(from.peer.process)) {
    return refusal(ReplyStatus::kSessionFull, "too many processes keep this controller alive");
  }
  clients_.tally.leases.store(leases_.size());
  spdlog::debug("lease of pid {}", from.peer.process->pid());
  Reply reply;
  reply.status = ReplyStatus::kOk;
  reply.board_id = clients_.board.board_id.load();
  return reply;
}

/// One descriptor for a connection: a peer that does not read must not keep many in flight.
Reply Registry::give_board(Connection& to, RequestKind kind) {
  const bool uses = kind == RequestKind::kBoard;
  const Terms terms = admission_.terms(to.peer);
  if (uses && !terms.admitted) return not_admitted(to.peer);
  const int board = admission_.board(uses && !terms.reader());
  if (board < 0 || std::exchange(to.has_board, true)) {
    return refusal(ReplyStatus::kBadRequest,
                   board < 0 ? "there is no board to give" : "this connection has got the board");
  }
  to.enclosed = board;
  Reply reply = reply_with(ReplyStatus::kOk, admission_.about());
  reply.board_id = clients_.board.board_id.load();
  return reply;
}

Reply Registry::not_admitted(const Peer& peer) const {
  return refusal(ReplyStatus::kNotAllowed, "the site policy does not admit user " +
                                               admission_.user_name(peer.uid) + ": not gated");
}

/// A program above its ceiling is gated like all others: without a slot it would harm them more.
std::uint8_t Registry::granted_priority(const Peer& peer, const Terms& terms, std::uint32_t asked,
                                        std::string& notice) const {
  if (asked <= static_cast<std::uint32_t>(terms.max_priority)) {
    return static_cast<std::uint8_t>(asked);
  }
  notice = "priority " + std::to_string(asked) + " is refused: user " +
           admission_.user_name(peer.uid) + " may ask for at most " +
           std::to_string(terms.max_priority) + "; runs at priority 0";
  return 0;
}

Reply Registry::attach(Connection& from, const Request& request) {
  const Terms terms = admission_.terms(from.peer);
  if (!terms.admitted) return not_admitted(from.peer);
  take_back_unanswered(from.peer);
  std::string notice;
  const std::uint8_t priority = granted_priority(from.peer, terms, request.priority, notice);
  std::string full = room_.fault_of_slot(from.peer.uid, priority, terms);
  if (!full.empty()) return refusal(ReplyStatus::kSessionFull, full);
  const std::optional<std::uint8_t> device =
      room_.device_index(from.peer.uid, terms, request, full);
  if (!device) return refusal(ReplyStatus::kSessionFull, full);
  const int slot = std::countr_one(clients_.view.used().load());
  // Before reserve(): if the controller is killed here, the slot is still free.
  fill_slot(slot, from, request);
  clients_.slot(slot).reader.store(terms.reader() ? 1 : 0);
  clients_.tenant(slot) = Tenant{from.peer.process, 0, 0, 0, false, from.peer.uid};
  begin_memory_limit(clients_.slot(slot), terms, request.memory, notice);
  begin_settings(clients_.slot(slot), request, terms, notice);
  shm::reserve(clients_.view, slot, priority, *device);
  update_outranked(clients_);
  clients_.tally.attached.fetch_add(1);
  commands_.ask(slot, clients_.info(slot).generation, from.peer.process->pid());
  spdlog::info("client attached: {}, priority {}, policy {}, device {} ({})",
               clients_.describe(slot), priority,
               shm::to_string(shm::Policy::unpack(request.policy)), *device,
               printable(text_of(request.device_name), request.device_name.size()));
  return given(from, slot, notice);
}

/// Calls `visit(slot)` for each slot that an earlier controller gave to this process and that has
/// had no connection since.
template <class Visit>
void Registry::for_each_adopted(const ClientProcess& process, Visit visit) {
  for (int slot = 0; slot < shm::kSlots; ++slot) {
    const Tenant& tenant = clients_.tenant(slot);
    if (!tenant.adopted || tenant.process == nullptr) continue;
    if (tenant.process->pid() == process.pid()) visit(slot);
  }
}

/// Slots that this process had asked for before `kept`, on the same device: it has one client
/// there. The earlier controller was killed before it saw that the process had given up.
void Registry::take_back_others(const Peer& peer, int kept) {
  for_each_adopted(*peer.process, [&](int slot) {
    if (slot == kept || clients_.info(slot).device != clients_.info(kept).device) return;
    take_back_reserved(clients_, slot);
    take_back_dead(clients_, slot);
  });
}

/// Slots that an earlier controller reserved for this process and that have no client yet: it was
/// killed before it replied, and the process asks anew.
void Registry::take_back_unanswered(const Peer& peer) {
  for_each_adopted(*peer.process, [&](int slot) { take_back_reserved(clients_, slot); });
}

void Registry::fill_slot(int index, const Connection& from, const Request& request) {
  shm::Slot& slot = clients_.slot(index);
  clear_counters(slot);
  clear_owner_fields(slot);
  // Time that the slot's former client held others is not the new client's.
  for (shm::Slot& other : clients_.board.slots) {
    other.held_by_ns[static_cast<std::size_t>(index)].store(0);
  }
  slot.pid.store(static_cast<std::uint32_t>(from.peer.process->pid()));
  slot.uid.store(from.peer.uid);
  slot.attached_ns.store(base::monotonic_ns());
  slot.policy.store(request.policy);
  slot.mps.store(request.mps);
  const std::string process = short_name(from.peer.process->pid());
  const std::string name = printable(text_of(request.name), slot.name.size() - 1);
  store_text(slot.name.data(), slot.name.size(), name.empty() ? process : name);
  store_text(slot.command.data(), slot.command.size(), process);
  store_text(slot.label.data(), slot.label.size(), text_of(request.label));
}

Reply Registry::attach_again(Connection& from, const Request& request) {
  const SlotInfo info = clients_.info(request.slot);
  const auto& tenant = clients_.tenant(request.slot).process;
  const bool same = clients_.board.board_id.load() == request.board_id &&
                    info.generation == request.generation && tenant != nullptr &&
                    tenant->pid() == from.peer.process->pid();
  if (!shm::lives(info.state) || !same) {
    return refusal(ReplyStatus::kOtherBoard, "slot " + std::to_string(request.slot) +
                                                 " no longer belongs to this process: not gated");
  }
  clients_.tenant(request.slot).process = from.peer.process;
  clients_.tenant(request.slot).hung_up_ns = 0;
  clients_.tenant(request.slot).adopted = false;
  take_back_others(from.peer, request.slot);
  clients_.tally.reattached.fetch_add(1);
  spdlog::info("client attached again: {}", clients_.describe(request.slot));
  return given(from, request.slot, {});
}

std::string Registry::fault_of_change(const Peer& peer, const Request& request) {
  const Terms terms = admission_.terms(peer);
  if (!terms.admitted) return not_admitted(peer).text.data();
  const uid_t owner = clients_.tenant(request.slot).uid;
  if (!admission_.may_change(peer, owner)) {
    return "the client belongs to user " + admission_.user_name(owner) +
           ": only this user and root may change it";
  }
  const bool keeps = request.priority == shm::kKeepPriority;
  if (!keeps && request.priority > static_cast<std::uint32_t>(terms.max_priority)) {
    return "priority " + std::to_string(request.priority) + ": user " +
           admission_.user_name(peer.uid) + " may ask for at most " +
           std::to_string(terms.max_priority);
  }
  if (!keeps && request.priority != 0 && clients_.is_reader(request.slot)) {
    return "the program was started by a user who may ask for 0 only: it cannot hold others";
  }
  if (std::string fault = fault_of_own_terms(request, terms); !fault.empty()) return fault;
  if (request.memory == shm::kKeepMemory) return {};
  return fault_of_memory_limit(clients_.slot(request.slot), peer, terms, request.memory);
}

/// The client itself puts a new policy or target in force, because only the client knows its
/// launches in flight and its jobs.
Reply Registry::set(const Connection& from, const Request& request) {
  const SlotInfo info = clients_.info(request.slot);
  if (!shm::lives(info.state) || clients_.board.board_id.load() != request.board_id ||
      info.generation != request.generation) {
    return refusal(ReplyStatus::kOtherBoard,
                   "the client of slot " + std::to_string(request.slot) + " has ended");
  }
  const std::string fault = fault_of_change(from.peer, request);
  if (!fault.empty()) return refusal(ReplyStatus::kNotAllowed, fault);
  shm::Slot& slot = clients_.slot(request.slot);
  const auto priority = request.priority == shm::kKeepPriority
                            ? info.priority
                            : static_cast<std::uint8_t>(request.priority);
  std::string changes;
  if (priority != info.priority) {
    changes += ", priority " + std::to_string(info.priority) + " -> " + std::to_string(priority);
  }
  changes += change_settings(slot, request);
  shm::change_priority(clients_.view, request.slot, priority);
  update_outranked(clients_);
  if (request.memory != shm::kKeepMemory) {
    changes += change_memory_limit(slot, from.peer, admission_.terms(from.peer), request.memory);
  }
  spdlog::info("client changed by pid {}: {}{}", from.peer.process->pid(),
               clients_.describe(request.slot), changes);
  Reply reply;
  reply.status = ReplyStatus::kOk;
  reply.slot = request.slot;
  reply.generation = info.generation;
  reply.board_id = request.board_id;
  return reply;
}

Reply Registry::given(Connection& to, int slot, const std::string& notice) {
  to.slots |= shm::bit(slot);
  Reply reply = reply_with(ReplyStatus::kOk, notice);
  reply.slot = slot;
  reply.generation = clients_.info(slot).generation;
  reply.board_id = clients_.board.board_id.load();
  return reply;
}

/// Of a slot that the sender has attached over this connection; else it is ignored.
void Registry::report(const Connection& from, const shm::Report& report) {
  const bool known = report.slot >= 0 && report.slot < shm::kSlots &&
                     (from.slots & shm::bit(report.slot)) != 0 && clients_.is_reader(report.slot) &&
                     clients_.tenant(report.slot).process == from.peer.process &&
                     clients_.info(report.slot).generation == report.generation;
  if (known) take_report(clients_, report);
}

void Registry::hung_up(const Connection& gone) {
  for (std::uint64_t slots = gone.slots; slots != 0; slots &= slots - 1) {
    const int slot = std::countr_zero(slots);
    Tenant& tenant = clients_.tenant(slot);
    // A client that has attached again, or a later client of the slot, has another connection.
    if (tenant.process != gone.peer.process) continue;
    // If the mutex is held, the client lives and has closed the connection itself.
    const bool lives = !clients_.is_reader(slot) && clients_.slot(slot).alive.held();
    tenant.hung_up_ns = lives ? 0 : base::monotonic_ns();
  }
}

}  // namespace sluice::controller
