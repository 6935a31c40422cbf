#include "tools/status/json.hpp"

#include "base/json_text.hpp"
#include "shm/slice.hpp"
#include "shm/weight.hpp"
#include "tools/status/format.hpp"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

Json entry_json(const shm::EntrySnapshot& entry) {
  Json bypassed = Json::object();
  for (auto i = static_cast<std::size_t>(shm::Count::kBypassPolicyNone);
       i < static_cast<std::size_t>(shm::Count::kLaunchKinds); ++i) {
    bypassed[shm::bypass_name(static_cast<shm::Count>(i))] = entry.counts[i];
  }
  return {{"entry", entry.name},
          {"launches", entry.launches},
          {"gated", entry.count(shm::Count::kGated)},
          {"captured", entry.count(shm::Count::kCaptured)},
          {"waited", entry.count(shm::Count::kWaited)},
          {"held_ns", entry.count(shm::Count::kHeldNs)},
          {"bypassed", bypassed}};
}

Json waits_json(const std::vector<shm::Wait>& waits) {
  Json json = Json::array();
  for (const shm::Wait& wait : waits) {
    json.push_back({{"pid", wait.pid}, {"name", wait.name}, {"ns", wait.ns}});
  }
  return json;
}

/// Null without a target. Durations that are not known yet are null.
Json target_json(const shm::TargetSnapshot& target) {
  if (target.text == "none" && target.requested == "none") return {};
  const auto known = [](std::uint64_t ns) { return ns == 0 ? Json() : Json(ns); };
  return {{"target", target.text},
          {"requested", target.requested},
          {"state", shm::target_state_name(target.state)},
          {"limit_ns", known(target.limit_ns)},
          {"alone_ns", known(target.alone_ns)},
          {"jobs", target.jobs},
          {"kept", target.kept},
          {"open_ns", target.open_ns},
          {"total_ns", target.total_ns},
          {"gates_open", target.gates_open}};
}

Json memory_json(const shm::MemorySnapshot& memory) {
  const bool fitted = memory.base_bytes != 0 || memory.slope_bytes != 0;
  return {{"held_bytes", memory.held_bytes},
          {"peak_bytes", memory.peak_bytes},
          {"limit_bytes", memory.limit_bytes ? Json(*memory.limit_bytes) : Json()},
          {"grant_bytes", memory.grant_bytes ? Json(*memory.grant_bytes) : Json()},
          {"order", memory.order.empty() ? Json() : Json(memory.order)},
          {"order_age_ns", memory.order.empty() ? Json() : Json(memory.order_age_ns)},
          {"base_bytes", fitted ? Json(memory.base_bytes) : Json()},
          {"slope_bytes", fitted ? Json(memory.slope_bytes) : Json()},
          {"refused_launches", memory.refused_launches},
          {"refused_allocations", memory.refused_allocations}};
}

Json closing_json(const shm::ClientSnapshot& client) {
  if (client.close.state == shm::CloseState::kUnknown) return nullptr;
  return {{"state", close_state_name(client.close.state)},
          {"level", client.close.level},
          {"waits_longer_us", {client.close_low_us, client.close_high_us}}};
}

/// `given` is null while nothing is known.
Json give_json(const shm::GiveSnapshot& give) {
  Json given;
  if (give.known) {
    given = {{"closing", give.closing / 1e4},
             {"windows", give.windows / 1e4},
             {"open", give.open / 1e4}};
  }
  return {{"most", give.most / 1000.0}, {"given", given}};
}

/// Null while nobody has tried.
Json slices_json(shm::SliceAnswer answer) {
  if (answer.kind == shm::SliceAnswer::Kind::kNone) return nullptr;
  const bool obeyed = answer.kind == shm::SliceAnswer::Kind::kObeyed;
  return {{"obeyed", obeyed}, {"job_us", answer.short_us}};
}

/// Null if it never had steps or windows.
Json steps_json(const shm::StepsSnapshot& steps) {
  if (steps.ended == 0 && steps.windows == 0) return nullptr;
  Json kinds = Json::array();
  for (const auto& kind : steps.kinds) {
    kinds.push_back({{"kind", kind.name},
                     {"share", kind.share / 1000.0},
                     {"p50_ns", kind.p50_ns},
                     {"p99_ns", kind.p99_ns}});
  }
  return {{"state", shm::step_state_name(steps.state)},
          {"steps", steps.ended},
          {"total_ns", steps.total_ns},
          {"windows", steps.windows},
          {"window_ns", steps.window_ns == 0 ? Json() : Json(steps.window_ns)},
          {"open_ns", steps.open_ns},
          {"longer", steps.cost / 1000.0},
          {"kinds", kinds}};
}

/// Null while nothing is known; values that are not known are null.
Json gain_json(const shm::Snapshot& snapshot) {
  const shm::Gain& gain = snapshot.gain;
  if (!has_gain(snapshot)) return nullptr;
  const auto known = [](auto value, double scale) {
    return value == 0 ? Json() : Json(static_cast<double>(value) / scale);
  };
  const bool busy = gain.busy_ns != 0;
  const bool divided = gain.best_effort_ns != shm::Gain::kUnknown;
  return {{"seconds", static_cast<double>(snapshot.taken_ns - gain.since_ns) / 1e9},
          {"shared_ns", gain.shared_ns},
          {"busy_ns", busy ? Json(gain.busy_ns) : Json()},
          {"busy_from", !busy ? Json() : Json(gain.measured ? "nvml" : "learned durations")},
          {"best_effort_ns", busy && divided ? Json(gain.best_effort_ns) : Json()},
          {"idle_before_ns", busy && divided ? Json(gain.idle_before_ns) : Json()},
          {"critical_p99_ns", gain.p99_ns == 0 ? Json() : Json(gain.p99_ns)},
          {"times_alone", known(gain.percent_of_alone, 100)},
          {"target_kept", gain.jobs_kept == 0 ? Json() : Json((gain.jobs_kept - 1) / 10'000.0)}};
}

/// Null if the client does not say.
Json mps_json(const shm::MpsWord& mps) {
  if (mps.mode == shm::MpsWord::Mode::kUnknown) return nullptr;
  const auto known = [](std::uint32_t number) { return number == 0 ? Json() : Json(number); };
  return {{"under", mps_mode_name(mps.mode)},
          {"daemon", known(mps.daemon)},
          {"percent", known(mps.percent)},
          {"sms", known(mps.sms)}};
}

Json labels_json(const shm::Labels& labels) {
  Json json = Json::object();
  for (const auto& [key, value] : labels) json[key] = value;
  return json;
}

Json client_json(const shm::ClientSnapshot& client) {
  Json holders = Json::array();
  for (const shm::Holder& holder : client.holders) {
    holders.push_back({{"pid", holder.pid},
                       {"priority", holder.priority},
                       {"name", holder.name},
                       {"command", holder.command}});
  }
  Json coverage = Json::array();
  for (const shm::EntrySnapshot& entry : client.entries) coverage.push_back(entry_json(entry));
  return {{"slot", client.slot},
          {"pid", client.pid},
          {"uid", client.uid},
          {"name", client.name},
          {"command", client.command},
          {"labels", labels_json(client.labels)},
          {"device", client.device},
          {"priority", client.priority},
          {"policy", client.policy},
          {"requested_policy", client.requested_policy},
          {"state", shm::state_name(client)},
          {"skipped_waits", client.skipped_waits},
          {"waited_for_by", client.waited_for_pid == 0 ? Json() : Json(client.waited_for_pid)},
          {"stalled_streams", client.stalled_streams},
          {"slice",
           {{"requested", client.slice},
            {"us", client.slice_us == 0 ? Json() : Json(client.slice_us)},
            {"state", shm::slice_state_name(client.slice_state)}}},
          {"mps", mps_json(client.mps)},
          {"weight", client.weight == shm::kNoWeight ? Json() : Json(client.weight)},
          {"turn", client.has_turn         ? Json("has")
                   : client.waits_for_turn ? Json("waits")
                                           : Json()},
          {"give", give_json(client.give)},
          {"waits",
           {{"items", client.waits_for_gpu.items},
            {"items_ns", client.waits_for_gpu.items_ns},
            {"waited_ns", client.waits_for_gpu.waited_ns}}},
          {"closing", closing_json(client)},
          {"steps", steps_json(client.steps)},
          {"gpu_share", client.gpu_share == 0 ? Json() : Json(client.gpu_share / 1000.0)},
          {"active", client.active},
          {"active_ns", client.active_ns},
          {"held_by", holders},
          {"held_ns", client.held_ns},
          {"held_total_ns", client.held_total_ns},
          {"held_total_by", waits_json(client.held_by)},
          {"held_by_ended_ns", shm::held_by_ended_ns(client)},
          {"held_others", waits_json(client.held_others)},
          {"held_others_ns", shm::held_others_ns(client)},
          {"target", target_json(client.target)},
          {"memory", memory_json(client.memory)},
          {"gpu_ns", client.gpu_ns == 0 ? Json() : Json(client.gpu_ns)},
          {"gpu_bound_ns", client.gpu_bound_ns},
          {"jobs", client.jobs_ended},
          {"jobs_total_ns", client.jobs_total_ns},
          {"launches", client.launches},
          {"bypassed", client.bypassed},
          {"waits", client.waits},
          {"max_hold_opened", client.max_hold_opened},
          {"unhooked_asked", client.unhooked_lookups},
          {"unhooked_name", client.unhooked_name},
          {"longest_ns", client.longest_launch_ns},
          {"ungated_graph_ns", client.ungated_graph_ns},
          {"unknown_launches", client.unknown_launches},
          {"predicted", client.predictions},
          {"predicted_hits", client.prediction_hits},
          {"predicted_paid_ns", client.prediction_cost_ns},
          {"coverage", coverage}};
}

}  // namespace

Json status_object(const shm::Snapshot& snapshot, const std::string& session) {
  Json json;
  json["session"] = session;
  json["controller"] = {{"pid", snapshot.controller_pid},
                        {"alive", snapshot.controller_lives},
                        {"heartbeat_age_ns", snapshot.heartbeat_age_ns},
                        {"starts", snapshot.controller_starts},
                        {"max_hold_ns", snapshot.max_hold_ns}};
  json["service"] = snapshot.service.empty() ? Json() : Json(snapshot.service);
  json["gain"] = gain_json(snapshot);
  json["devices"] = Json::array();
  for (const shm::DeviceSnapshot& device : snapshot.devices) {
    json["devices"].push_back({{"index", device.index},
                               {"name", device.name},
                               {"uuid", device.uuid},
                               {"slices", slices_json(device.slices)}});
  }
  json["clients"] = Json::array();
  for (const shm::ClientSnapshot& client : snapshot.clients) {
    json["clients"].push_back(client_json(client));
  }
  json["outside"] = Json::array();
  for (const shm::OutsideProcess& process : snapshot.outside) {
    json["outside"].push_back(
        {{"device", process.device},
         {"pid", process.pid == 0 ? Json() : Json(process.pid)},
         {"command", process.command},
         {"memory_bytes", process.memory_bytes ? Json(*process.memory_bytes) : Json()},
         {"preloaded", process.preloaded}});
  }
  return json;
}

std::string json_text(const Json& json) {
  // A command may contain any bytes, and may end in the middle of a character.
  return base::json_text(json, 2) + "\n";
}

std::string status_json(const shm::Snapshot& snapshot, const std::string& session) {
  return json_text(status_object(snapshot, session));
}

}  // namespace sluice::tools
