#include "controller/exposition.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <string_view>
#include <vector>

#include "base/metrics_text.hpp"
#include "base/user_name.hpp"
#include "controller/clients.hpp"
#include "controller/device_metrics.hpp"
#include "shm/entry_names.hpp"
#include "shm/gates.hpp"
#include "shm/give.hpp"
#include "shm/labels.hpp"
#include "shm/memory.hpp"
#include "shm/policy.hpp"
#include "shm/target.hpp"
#include "shm/view.hpp"

namespace sluice::controller {
namespace {

using base::MetricsText;
using shm::Count;
using shm::SlotState;

constexpr std::array<std::string_view, 5> kStateNames{"free", "reserved", "live", "leaving",
                                                      "dead"};
constexpr std::array<std::pair<Count, std::string_view>, 3> kBypassReasons{
    {{Count::kBypassPolicyNone, "policy_none"},
     {Count::kBypassUnattached, "unattached"},
     {Count::kBypassRefusedWait, "refused_wait"}}};

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// One client at one moment: who it is, and its slot.
struct Row {
  const shm::Slot& slot;
  shm::SlotInfo info;
  std::string index;
  std::string pid;
  std::string name;
  std::uint64_t age_ns;  ///< Since it attached, by the clock of the controller.
  /// The labels of every sample of this client. Nothing that `sluice set` changes is among them: a
  /// counter whose labels change goes on as another series, and a sum over both counts it twice.
  MetricsText::Labels identity;

  /// A time in seconds that the client, or one that held it, has written by its own clock. It
  /// cannot have lasted longer than the client has been there.
  [[nodiscard]] double at_most_age(double lasted) const {
    return std::min(lasted, seconds(age_ns));
  }
  [[nodiscard]] double at_most_age(const shm::Word& ns) const {
    return at_most_age(seconds(ns.load()));
  }

  /// `identity`, followed by `more`.
  [[nodiscard]] MetricsText::Labels labels(MetricsText::Labels more = {}) const {
    MetricsText::Labels all = identity;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

/// The user's labels follow those of Sluice. Their prefix keeps them apart.
void identify(const shm::Board& board, Row& row, bool with_user) {
  row.identity = {{"slot", row.index},
                  {"pid", row.pid},
                  {"name", row.name},
                  {"device", device_name(board, row.info.device)}};
  if (with_user) row.identity.emplace_back("user", base::user_name(row.slot.uid.load()));
  const std::string labels = load_text(row.slot.label.data(), row.slot.label.size());
  for (auto& [key, value] : shm::parse_labels(labels)) {
    row.identity.emplace_back("label_" + key, value);
  }
}

std::vector<Row> read_rows(const shm::Board& board, std::uint64_t now_ns, bool with_users) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < board.slots.size(); ++i) {
    const shm::Slot& slot = board.slots[i];
    const auto info = shm::SlotInfo::unpack(slot.info.load());
    if (info.state == SlotState::kFree) continue;
    rows.push_back({slot,
                    info,
                    std::to_string(i),
                    std::to_string(slot.pid.load()),
                    load_text(slot.name.data(), slot.name.size()),
                    shm::age_ns(slot, now_ns),
                    {}});
    identify(board, rows.back(), with_users);
  }
  return rows;
}

void write_clients(MetricsText& out, const std::vector<Row>& rows, Show show) {
  out.family("sluice_slots", "gauge", "Client slots of the session.");
  out.sample(shm::kSlots);
  out.family("sluice_clients", "gauge", "Client slots in use, by state.");
  for (std::size_t state = 1; state < kStateNames.size(); ++state) {
    const auto count = std::count_if(rows.begin(), rows.end(), [&](const Row& row) {
      return static_cast<std::size_t>(row.info.state) == state;
    });
    out.sample({{"state", std::string(kStateNames[state])}}, static_cast<double>(count));
  }
  out.family("sluice_client_info", "gauge",
             "One per client: who it is, its settings and its state.");
  for (const Row& row : rows) {
    const auto state =
        std::min<std::size_t>(static_cast<std::size_t>(row.info.state), kStateNames.size() - 1);
    MetricsText::Labels about{
        {"priority", std::to_string(row.info.priority)},
        {"policy", shm::to_string(shm::Policy::unpack(row.slot.policy.load()))},
        {"target", shm::to_string(shm::Target::unpack(row.slot.target.load()))},
        {"state", std::string(kStateNames[state])}};
    if (show.commands) {
      about.emplace_back("command", load_text(row.slot.command.data(), row.slot.command.size()));
    }
    out.sample(row.labels(std::move(about)), 1);
  }
}

/// One number per client.
void write_slots(MetricsText& out, const std::vector<Row>& rows) {
  struct Family {
    const char* name;
    const char* type;
    const char* help;
    double (*value)(const Row&);
  };
  constexpr std::array<Family, 8> kFamilies{{
      {"sluice_client_active", "gauge", "1 while a job of the client runs.",
       [](const Row& row) { return shm::has_job(row.slot) ? 1.0 : 0.0; }},
      {"sluice_jobs_total", "counter", "Jobs that the client has ended.",
       [](const Row& row) { return static_cast<double>(row.slot.job_times.ended.load()); }},
      {"sluice_gate_closed", "gauge", "1 while a job of higher priority holds the client.",
       [](const Row& row) { return row.slot.gate.load() != 0 ? 1.0 : 0.0; }},
      {"sluice_gate_holders", "gauge", "Clients that hold the client now.",
       [](const Row& row) { return static_cast<double>(std::popcount(row.slot.gate.load())); }},
      {"sluice_gate_closed_seconds_total", "counter",
       "Time with the gate closed and work outstanding.",
       [](const Row& row) { return row.at_most_age(row.slot.closed_ns); }},
      {"sluice_max_hold_openings_total", "counter",
       "Holds that were ended because they outlasted --max-hold.",
       [](const Row& row) { return static_cast<double>(row.slot.max_hold_opened.load()); }},
      {"sluice_skipped_waits_total", "counter",
       "Waits of a policy on the driver that took more than 5 s and were skipped.",
       [](const Row& row) { return static_cast<double>(row.slot.skipped_waits.load()); }},
      {"sluice_unhooked_lookups_total", "counter",
       "Lookups by the program of launch entries that have no hook.",
       [](const Row& row) { return static_cast<double>(row.slot.unhooked_lookups.load()); }},
  }};
  for (const Family& family : kFamilies) {
    out.family(family.name, family.type, family.help);
    for (const Row& row : rows) {
      out.sample(row.labels(), family.value(row));
    }
  }
}

/// Numbers that are missing where they are unknown, or where there is no target. Zeros would look
/// like measurements.
void write_use(MetricsText& out, const std::vector<Row>& rows) {
  struct Family {
    const char* name;
    const char* type;
    const char* help;
    bool (*applies)(const shm::Slot&);
    double (*value)(const shm::Slot&);
    bool lasts = false;  ///< See Row::at_most_age().
  };
  // Also after its target was taken away: a counter that goes comes back as a jump.
  constexpr auto kHadTarget = [](const shm::Slot& slot) {
    return slot.target.load() != 0 || slot.target_jobs.load() != 0 || slot.open_ns.load() != 0;
  };
  constexpr auto kAlways = [](const shm::Slot&) { return true; };
  constexpr auto kHasItems = [](const shm::Slot& slot) { return slot.items.load() != 0; };
  constexpr std::array<Family, 16> kFamilies{{
      {"sluice_client_close_level", "gauge",
       "When its jobs close the gates below, in eighths of a job; 8: when it waits, 9: never.",
       [](const shm::Slot& slot) { return slot.close_state.load() != 0; },
       [](const shm::Slot& slot) {
         return static_cast<double>(shm::CloseWord::unpack(slot.close_state.load()).level);
       }},
      {"sluice_client_weight", "gauge", "Its weight in the turns of its priority; no sample: none.",
       [](const shm::Slot& slot) { return slot.requested_weight.load() != 0; },
       [](const shm::Slot& slot) { return static_cast<double>(slot.requested_weight.load()); }},
      {"sluice_client_give_ratio", "gauge",
       "How much longer jobs and steps of a client above best effort may take for those below it.",
       [](const shm::Slot& slot) { return shm::SlotInfo::unpack(slot.info.load()).priority != 0; },
       [](const shm::Slot& slot) { return shm::unpack_give(slot.requested_give.load()) / 1e3; }},
      {"sluice_client_timed_total", "counter",
       "Jobs and steps of a client that holds others, as counted for the two times below.",
       kHasItems, [](const shm::Slot& slot) { return static_cast<double>(slot.items.load()); }},
      {"sluice_client_timed_seconds_total", "counter", "How long these jobs and steps took.",
       kHasItems, [](const shm::Slot& slot) { return seconds(slot.items_ns.load()); }},
      {"sluice_client_waited_seconds_total", "counter",
       "How long these jobs and steps were in calls that wait for the GPU.", kHasItems,
       [](const shm::Slot& slot) { return seconds(slot.items_waited_ns.load()); }},
      {"sluice_client_slice_seconds", "gauge",
       "Time slice that was set for the client; no sample: the driver's.",
       [](const shm::Slot& slot) { return slot.slice_us.load() != 0; },
       [](const shm::Slot& slot) { return slot.slice_us.load() / 1e6; }},
      {"sluice_client_memory_bytes", "gauge", "Device memory that the client holds.", kAlways,
       [](const shm::Slot& slot) { return static_cast<double>(slot.memory.held.load()); }},
      {"sluice_client_memory_limit_bytes", "gauge",
       "Device memory that the user or the site lets the client hold.",
       [](const shm::Slot& slot) { return slot.memory_limit.load() != 0; },
       [](const shm::Slot& slot) { return static_cast<double>(slot.memory_limit.load()); }},
      {"sluice_client_refused_allocations_total", "counter",
       "Allocations of the client that its limit or its grant refused.", kAlways,
       [](const shm::Slot& slot) {
         return static_cast<double>(slot.memory.refused_allocations.load());
       }},
      {"sluice_client_gpu_seconds_total", "counter",
       "GPU time of the client's work: an estimate from measured launches.",
       [](const shm::Slot& slot) { return slot.gpu_ns.load() != 0; },
       [](const shm::Slot& slot) { return seconds(slot.gpu_ns.load()); }},
      {"sluice_client_gpu_bound_seconds_total", "counter",
       "Part of that estimate that is an upper bound: measured next to other work only.",
       [](const shm::Slot& slot) { return slot.gpu_ns.load() != 0; },
       [](const shm::Slot& slot) {
         return seconds(std::min(slot.gpu_bound_ns.load(), slot.gpu_ns.load()));
       }},
      {"sluice_client_target_seconds", "gauge",
       "A job that takes at most this long is good enough.",
       [](const shm::Slot& slot) { return slot.target.load() != 0 && slot.target_ns.load() != 0; },
       [](const shm::Slot& slot) { return seconds(slot.target_ns.load()); }},
      {"sluice_client_target_jobs_total", "counter", "Jobs that ended with a known target.",
       kHadTarget,
       [](const shm::Slot& slot) { return static_cast<double>(slot.target_jobs.load()); }},
      {"sluice_client_target_kept_total", "counter", "Jobs that ended within their target.",
       kHadTarget,
       [](const shm::Slot& slot) { return static_cast<double>(slot.target_kept.load()); }},
      {"sluice_client_open_gate_seconds_total", "counter",
       "Time of the client's jobs during which its target let the others run.", kHadTarget,
       [](const shm::Slot& slot) { return seconds(slot.open_ns.load()); }, true},
  }};
  for (const Family& family : kFamilies) {
    out.family(family.name, family.type, family.help);
    for (const Row& row : rows) {
      if (!family.applies(row.slot)) continue;
      const double value = family.value(row.slot);
      out.sample(row.labels(), family.lasts ? row.at_most_age(value) : value);
    }
  }
}

/// Clients that hold nobody, and those of which nothing is known yet, have no sample.
void write_given(MetricsText& out, const std::vector<Row>& rows) {
  out.family("sluice_client_given_ratio", "gauge",
             "How much longer its jobs and steps took in the last minute for those below it.");
  for (const Row& row : rows) {
    if (row.slot.gives_known.load() == 0) continue;
    const auto add = [&](const char* lever, const shm::HalfWord& word) {
      out.sample(row.labels({{"lever", lever}}), word.load() / 1e4);
    };
    add("closing", row.slot.gives_closing);
    add("windows", row.slot.gives_windows);
    add("open", row.slot.gives_open);
  }
}

/// Clients that may hold any amount have no sample.
void write_grants(MetricsText& out, const shm::Board& board, const std::vector<Row>& rows) {
  out.family("sluice_client_memory_grant_bytes", "gauge",
             "Device memory that a broker lets the client hold.");
  for (const Row& row : rows) {
    const int slot = static_cast<int>(&row.slot - board.slots.data());
    const std::uint64_t grant = shm::grant_of(board, {slot, row.info.generation});
    if (grant != shm::kNoLimit) out.sample(row.labels(), static_cast<double>(grant));
  }
}

/// Who held whom. Pairs that never met have no sample.
void write_holds(MetricsText& out, const std::vector<Row>& rows) {
  out.family("sluice_client_held_seconds_total", "counter",
             "Time that the holder held the client while it had work.");
  for (const Row& row : rows) {
    const auto add = [&](std::size_t slot, const std::string& holder, const std::string& pid) {
      const shm::Word& ns = row.slot.held_by_ns[slot];
      if (ns.load() == 0) return;
      out.sample(row.labels({{"holder", holder}, {"holder_pid", pid}}), row.at_most_age(ns));
    };
    for (const Row& holder : rows) {
      const bool itself = holder.index == row.index;
      add(std::stoul(holder.index), itself ? "the turns of others" : holder.name,
          itself ? "0" : holder.pid);
    }
    add(shm::kControllerBit, "the controller", "0");
  }
}

/// The latency of each client's jobs.
void write_job_times(MetricsText& out, const std::vector<Row>& rows) {
  using shm::JobTimes;
  out.family("sluice_job_duration_seconds", "histogram", "From the begin of a job to its end.");
  for (const Row& row : rows) {
    const JobTimes& times = row.slot.job_times;
    double jobs = 0;  // buckets are cumulative in this format
    for (std::size_t i = 0; i < times.buckets.size(); ++i) {
      jobs += static_cast<double>(times.buckets[i].load());
      const std::string bound = i < JobTimes::kBoundsNs.size()
                                    ? MetricsText::number(seconds(JobTimes::kBoundsNs[i]))
                                    : "+Inf";
      out.sample("_bucket", row.labels({{"le", bound}}), jobs);
    }
    out.sample("_sum", row.labels(), row.at_most_age(times.total_ns));
    out.sample("_count", row.labels(), jobs);
  }
}

/// The steps of clients that are never idle. Others have no sample.
void write_steps(MetricsText& out, const std::vector<Row>& rows) {
  struct Family {
    const char* name;
    const char* help;
    double (*value)(const shm::StepTimes&);
    bool lasts = false;
  };
  constexpr std::array<Family, 4> kFamilies{{
      {"sluice_client_steps_total", "Steps of the client that ended.",
       [](const shm::StepTimes& of) { return static_cast<double>(of.ended.load()); }},
      {"sluice_client_step_windows_total", "Times that gates opened for a window in its steps.",
       [](const shm::StepTimes& of) { return static_cast<double>(of.windows.load()); }},
      {"sluice_client_step_open_seconds_total", "Time of these windows.",
       [](const shm::StepTimes& of) { return seconds(of.open_ns.load()); }, true},
      {"sluice_client_step_duration_seconds_total", "Time of the steps that ended.",
       [](const shm::StepTimes& of) { return seconds(of.total_ns.load()); }, true},
  }};
  const auto has_steps = [](const Row& row) {
    return row.slot.steps.ended.load() != 0 || row.slot.steps.windows.load() != 0;
  };
  for (const Family& family : kFamilies) {
    out.family(family.name, "counter", family.help);
    for (const Row& row : rows) {
      if (!has_steps(row)) continue;
      const double value = family.value(row.slot.steps);
      out.sample(row.labels(), family.lasts ? row.at_most_age(value) : value);
    }
  }
  out.family("sluice_client_step_seconds", "gauge",
             "Time of the last steps of a kind, at a quantile.");
  for (const Row& row : rows) {
    for (const shm::StepTimes::Kind& kind : row.slot.steps.kinds) {
      const std::string name = std::to_string(kind.name.load());
      if (!has_steps(row) || name == "0") continue;
      const auto add = [&](const char* quantile, std::uint32_t us) {
        out.sample(row.labels({{"kind", name}, {"quantile", quantile}}), us / 1e6);
      };
      add("0.5", kind.p50_us.load());
      add("0.99", kind.p99_us.load());
    }
  }
}

/// Calls `visit(row, entry name, counters)` for every driver entry that a client has used.
template <class Visit>
void for_each_entry(const std::vector<Row>& rows, Visit visit) {
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < shm::kEntryNames.size(); ++i) {
      const shm::EntryCounters& counters = row.slot.entries[i];
      if (counters.launches() != 0) visit(row, shm::kEntryNames[i], counters);
    }
  }
}

/// One number per client and driver entry.
void write_entries(MetricsText& out, const std::vector<Row>& rows) {
  using Counters = shm::EntryCounters;
  struct Family {
    const char* name;
    const char* help;
    double (*value)(const Counters&);
  };
  constexpr std::array<Family, 5> kFamilies{{
      {"sluice_launches_total", "Calls of a driver entry that gives the GPU work.",
       [](const Counters& of) { return static_cast<double>(of.launches()); }},
      {"sluice_launches_gated_total", "Launches that passed the gate under a policy.",
       [](const Counters& of) { return static_cast<double>(of.value(Count::kGated)); }},
      {"sluice_launches_captured_total", "Launches recorded into a graph.",
       [](const Counters& of) { return static_cast<double>(of.value(Count::kCaptured)); }},
      {"sluice_launches_waited_total",
       "Launches held on the host, or with a stream wait put in front.",
       [](const Counters& of) { return static_cast<double>(of.value(Count::kWaited)); }},
      {"sluice_launch_held_seconds_total", "Time that launching threads were held on the host.",
       [](const Counters& of) { return seconds(of.value(Count::kHeldNs)); }},
  }};
  for (const Family& family : kFamilies) {
    out.family(family.name, "counter", family.help);
    for_each_entry(rows, [&](const Row& row, std::string_view entry, const Counters& counters) {
      out.sample(row.labels({{"entry", std::string(entry)}}), family.value(counters));
    });
  }
  out.family("sluice_launches_bypassed_total", "counter",
             "Launches that went to the driver without passing the gate.");
  for_each_entry(rows, [&](const Row& row, std::string_view entry, const Counters& counters) {
    for (const auto& [count, reason] : kBypassReasons) {
      out.sample(row.labels({{"entry", std::string(entry)}, {"reason", std::string(reason)}}),
                 static_cast<double>(counters.value(count)));
    }
  });
}

void write_controller(MetricsText& out, const shm::Board& board, const Tally& tally,
                      std::uint64_t now_ns) {
  const std::uint64_t beat = board.heartbeat_ns.load();
  out.family("sluice_heartbeat_age_seconds", "gauge",
             "Age of the last heartbeat. Above 0.15 new clients run ungated.");
  out.sample(seconds(now_ns > beat ? now_ns - beat : 0));
  out.family("sluice_max_hold_seconds", "gauge", "Longest hold by one job. 0: no limit.");
  out.sample(seconds(board.max_hold_ns.load()));
  out.family("sluice_leases", "gauge", "Processes that asked for a controller.");
  out.sample(static_cast<double>(tally.leases.load()));
  out.family("sluice_controller_starts_total", "counter",
             "Controllers that this board has had. Above 1: it was adopted.");
  out.sample(board.controller_starts.load());
  struct Family {
    const char* name;
    const char* help;
    const std::atomic<std::uint64_t>& value;
  };
  for (const Family& family : {
           Family{"sluice_attaches_total", "Slots given out.", tally.attached},
           Family{"sluice_reattaches_total", "Clients that attached again to their slot.",
                  tally.reattached},
           Family{"sluice_refusals_total", "Requests and connections refused.", tally.refused},
           Family{"sluice_deaths_repaired_total", "Clients that died without leaving.",
                  tally.deaths_repaired},
       }) {
    out.family(family.name, "counter", family.help);
    out.sample(static_cast<double>(family.value.load()));
  }
}

/// The two p99 that show what best effort costs jobs. No sample for fewer than 100 jobs.
void write_job_use(MetricsText& out, const std::vector<Row>& rows,
                   const std::map<int, JobUse>& jobs) {
  out.family("sluice_client_job_seconds", "gauge",
             "p99 of jobs of the last one or two days, next to best effort and without it.");
  for (const Row& row : rows) {
    const auto use = jobs.find(static_cast<int>(std::stoul(row.index)));
    if (use == jobs.end()) continue;
    const auto add = [&](const char* best_effort, const DurationBins& bins) {
      const auto p99_ns = bins.p99_ns();
      if (p99_ns)
        out.sample(row.labels({{"best_effort", best_effort}, {"quantile", "0.99"}}),
                   seconds(*p99_ns));
    };
    add("works", use->second.mixed);
    add("idle", use->second.alone);
  }
}

}  // namespace

std::string exposition(const shm::Board& board, const Tally& tally, std::uint64_t now_ns,
                       const std::vector<shm::OutsideProcess>& outside, const Lookout::Use& use,
                       Show show) {
  const std::vector<Row> rows = read_rows(board, now_ns, show.users);
  MetricsText out;
  write_controller(out, board, tally, now_ns);
  write_clients(out, rows, show);
  write_slots(out, rows);
  write_use(out, rows);
  write_given(out, rows);
  write_grants(out, board, rows);
  write_holds(out, rows);
  write_job_times(out, rows);
  write_steps(out, rows);
  write_entries(out, rows);
  write_job_use(out, rows, use.jobs);
  write_devices(out, board, outside, use.devices);
  return out.take();
}

}  // namespace sluice::controller
