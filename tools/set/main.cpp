// `sluice set`: changes the settings of a running client, such as its priority.
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/command_line.hpp"
#include "base/json_text.hpp"
#include "base/node_service.hpp"
#include "shm/give.hpp"
#include "shm/mapping.hpp"
#include "shm/memory_limit.hpp"
#include "shm/policy.hpp"
#include "shm/policy_text.hpp"
#include "shm/session.hpp"
#include "shm/slice.hpp"
#include "shm/weight.hpp"
#include "tools/common/sessions.hpp"
#include "tools/set/choice.hpp"
#include "tools/set/request.hpp"
#include "tools/status/format.hpp"
#include "tools/status/look.hpp"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kName = "sluice set";
constexpr int kPatienceMs = 1000;

struct Options {
  std::string client;
  std::optional<int> priority;
  std::string policy;
  std::string target;
  std::string slice;
  std::string memory;
  std::string weight;
  std::string give;
  std::string session = base::default_session();
  bool all = false;
  bool json = false;
};

struct UsageOfSet : CLI::Formatter {
  std::string make_usage(const CLI::App* /*app*/, std::string name) const override {
    return "Usage: " + name +
           " CLIENT [--policy POLICY] [--priority N] [--target TARGET] [--slice SLICE] "
           "[--memory SIZE] [--weight N] [--give SHARE] [OPTIONS]\n";
  }
};

void add_options(CLI::App& app, Options& options) {
  app.formatter(std::make_shared<UsageOfSet>());
  app.add_option("CLIENT", options.client,
                 "A name (all programs of that name), a pid, slot:N, label:KEY=VALUE (all programs "
                 "with the label), or a part of a command that no other client has")
      ->required();
  app.add_option("--policy", options.policy,
                 "How it gives way to higher priorities: " + std::string(shm::kPolicyForms))
      ->type_name("POLICY")
      ->check(shm::check_policy);
  app.add_option("--priority", options.priority, "0 is best effort, the higher number wins")
      ->type_name("0-255")
      ->check(base::whole_number(0, 255));
  app.add_option("--target", options.target,
                 "What latency is good enough for its jobs: " + std::string(shm::kTargetForms))
      ->type_name("TARGET")
      ->check(shm::check_target);
  app.add_option(
         "--slice", options.slice,
         "Its time slice on the GPU next to a higher priority: " + std::string(shm::kSliceForms))
      ->type_name("SLICE")
      ->check(shm::check_slice);
  app.add_option("--memory", options.memory,
                 "The most device memory that it may hold: " + std::string(shm::kMemoryLimitForms))
      ->type_name("SIZE")
      ->check(shm::check_memory_limit);
  app.add_option(
         "--weight", options.weight,
         "Its part of the GPU among programs of its priority: " + std::string(shm::kWeightForms))
      ->type_name("N")
      ->check(shm::check_weight);
  app.add_option("--give", options.give,
                 "How much longer its jobs and steps may take for those below it: " +
                     std::string(shm::kGiveForms))
      ->type_name("SHARE")
      ->check(shm::check_give);
  app.add_flag("--all", options.all, "Change every client that has the part, if several do");
  base::add_session_option(app, options.session);
  app.add_flag("--json", options.json, "Print JSON");
  app.footer(
      "No launch is lost or reordered. Launches under way end under the old policy; the new "
      "policy\n"
      "holds within about 20 ms. A memory limit below what the client holds takes nothing away:\n"
      "further allocations fail until it fits. A process on several GPUs is changed on all of "
      "them,\n"
      "unless it is named by slot:N. Settings are of each process: three programs with a memory\n"
      "limit of 20GiB may hold 60GiB.\n\nExamples:\n"
      "  sluice set train.py --policy device:400us\n"
      "  sluice set 4711 --priority 5\n"
      "  sluice set serve --target p99=50ms\n"
      "  sluice set serve --give 2.5%\n"
      "  sluice set train.py --memory 20GiB\n"
      "  sluice set label:job=4711 --priority 0\n"
      "  sluice set slot:3 --policy device:8 --priority 0 --session b\n\n"
      "Exit codes: 1: no such session, no controller answers, or the client does not react (is it\n"
      "stopped?); 2: wrong usage, no such client.");
}

std::string change(const std::string& what, const std::string& before, const std::string& after) {
  return ", " + what + " " + (before == after ? after : before + " -> " + after);
}

std::string limit_text(const shm::ClientSnapshot& client) {
  return shm::memory_limit_text(client.memory.limit_bytes.value_or(0));
}

std::string line_of(const shm::ClientSnapshot& before, const shm::ClientSnapshot& after) {
  std::string line =
      describe(after) +
      change("priority", std::to_string(before.priority), std::to_string(after.priority)) +
      change("policy", before.policy, after.policy);
  if (before.target.text != after.target.text || after.target.text != "none") {
    line += change("target", before.target.text, after.target.text);
  }
  if (before.slice != after.slice || after.slice != "auto") {
    line += change("slice", before.slice, after.slice);
  }
  if (before.memory.limit_bytes != after.memory.limit_bytes || after.memory.limit_bytes) {
    line += change("memory", limit_text(before), limit_text(after));
  }
  if (before.weight != after.weight || after.weight != shm::kNoWeight) {
    line += change("weight", shm::weight_text(before.weight), shm::weight_text(after.weight));
  }
  if (before.give.most != after.give.most || after.give.most != shm::kDefaultGive) {
    line += change("give", shm::give_text(before.give.most), shm::give_text(after.give.most));
  }
  if (after.policy != after.requested_policy) line += " (" + policy_note(after) + ")";
  return line + "\n";
}

Json limit_json(const shm::ClientSnapshot& client) {
  return client.memory.limit_bytes ? Json(*client.memory.limit_bytes) : Json();
}

Json weight_json(const shm::ClientSnapshot& client) {
  return client.weight == shm::kNoWeight ? Json() : Json(client.weight);
}

Json give_json(const shm::ClientSnapshot& client) { return client.give.most / 1000.0; }

Json json_of(const shm::ClientSnapshot& before, const shm::ClientSnapshot& after) {
  return {{"slot", after.slot},
          {"pid", after.pid},
          {"name", after.name},
          {"command", after.command},
          {"device", after.device},
          {"priority", after.priority},
          {"policy", after.policy},
          {"requested_policy", after.requested_policy},
          {"target", after.target.text},
          {"slice", after.slice},
          {"memory_limit_bytes", limit_json(after)},
          {"weight", weight_json(after)},
          {"give", give_json(after)},
          {"before",
           {{"priority", before.priority},
            {"policy", before.policy},
            {"target", before.target.text},
            {"slice", before.slice},
            {"memory_limit_bytes", limit_json(before)},
            {"weight", weight_json(before)},
            {"give", give_json(before)}}}};
}

/// Changes one client, waits for it to react, and reports.
void set_one(const Options& options, const Settings& settings, const shm::Snapshot& snapshot,
             const shm::ClientSnapshot& client, Json& told) {
  ask_for(options.session, snapshot.board_id, client, settings);
  const auto after = wait_until_taken(options.session, snapshot.board_id, client, kPatienceMs);
  if (!after) {
    throw base::RunError(describe(client) + " has not taken up the change within " +
                         std::to_string(kPatienceMs) + " ms (is it stopped?)");
  }
  if (settings.give && after->give.most != *settings.give) {
    throw base::RunError("the controller of session " + options.session +
                         " is of an earlier version, which does not know --give");
  }
  if (const std::string note = ungated_note(snapshot, *after); settings.policy && !note.empty()) {
    base::print_error(kName, "pid " + std::to_string(after->pid) + " " + note);
  }
  if (options.json) {
    told.push_back(json_of(client, *after));
  } else {
    std::cout << line_of(client, *after);
  }
}

std::size_t processes_of(const std::vector<shm::ClientSnapshot>& clients) {
  std::set<std::uint32_t> pids;
  for (const shm::ClientSnapshot& client : clients) pids.insert(client.pid);
  return pids.size();
}

/// Changes the clients that are named. Among several processes, one that fails keeps no other from
/// its change; a line says how many were changed. Returns the exit code.
int set_named(const Options& options, const Settings& settings, Json& told) {
  const shm::Snapshot snapshot = look_at(options.session);
  const auto clients = choose_clients(snapshot, options.client, options.all);
  if (processes_of(clients) == 1) {
    for (const auto& client : clients) set_one(options, settings, snapshot, client, told);
    return base::kExitFine;
  }
  std::vector<shm::ClientSnapshot> changed;
  int exit_code = base::kExitFine;
  std::string said;  // a fault of the session is one line, not one for each client
  const auto fails = [&](int code, const std::string& line) {
    if (exit_code == base::kExitFine) exit_code = code;
    if (std::exchange(said, line) != line) base::print_error(kName, line);
  };
  for (const shm::ClientSnapshot& client : clients) {
    try {
      set_one(options, settings, snapshot, client, told);
      changed.push_back(client);
    } catch (const base::UsageError& error) {
      fails(base::kExitUsage, error.what());
    } catch (const base::RunError& error) {
      fails(base::kExitFailed, error.what());
    }
  }
  if (!options.json) {
    std::cout << "changed " << processes_of(changed) << " of " << processes_of(clients)
              << " programs\n";
  }
  return exit_code;
}

int set(int argc, char** argv) {
  CLI::App app(
      "Change the priority, policy, target, slice, memory limit, weight or give of a running "
      "client.",
      kName);
  Options options;
  add_options(app, options);
  if (const auto exit_code = base::parse(app, argc, argv)) return *exit_code;
  Settings settings;
  settings.priority = options.priority;
  if (!options.policy.empty()) settings.policy = shm::parse_policy(options.policy);
  if (!options.target.empty()) settings.target = shm::parse_target(options.target);
  if (!options.slice.empty()) settings.slice = shm::parse_slice(options.slice);
  if (!options.memory.empty()) settings.memory = shm::parse_memory_limit(options.memory);
  if (!options.weight.empty()) settings.weight = shm::parse_weight(options.weight);
  if (!options.give.empty()) settings.give = shm::parse_give(options.give);
  const std::string warning = settings.policy ? shm::policy_warning(*settings.policy) : "";
  if (!warning.empty()) base::print_error(kName, warning);
  if (!settings.priority && !settings.policy && !settings.target && !settings.slice &&
      !settings.memory && !settings.weight && !settings.give) {
    throw base::UsageError(
        "nothing to change: name --policy, --priority, --target, --slice, --memory, --weight or "
        "--give");
  }
  Json told{{"session", options.session}, {"clients", Json::array()}};
  int exit_code = base::kExitFine;
  try {
    exit_code = set_named(options, settings, told["clients"]);
  } catch (const shm::NoBoard&) {
    throw no_session(options.session);
  }
  if (options.json) {
    std::cout << base::json_text(told, 2) << '\n';
  }
  return exit_code;
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  return sluice::base::run_program(sluice::tools::kName,
                                   [&] { return sluice::tools::set(argc, argv); });
}
