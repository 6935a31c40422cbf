#include "runner/experiment_reader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <limits>
#include <map>

#include "base/error.hpp"
#include "base/json_node.hpp"
#include "shm/give.hpp"
#include "shm/memory_limit.hpp"
#include "shm/policy_text.hpp"
#include "shm/weight.hpp"

namespace sluice::runner {
namespace {

namespace fs = std::filesystem;

constexpr double kMaxAnnounceMs = 1000;
constexpr double kMaxSeconds = 1e6;
constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();

shm::Policy read_policy(const base::JsonNode& node) {
  const std::string text = node.as_text();
  if (const auto policy = shm::parse_policy(text)) return *policy;
  node.refuse(std::string(shm::kPolicyForms) + shm::policy_hint(text, '"'));
}

shm::Target read_target(const base::JsonNode& node) {
  const std::string text = node.as_text();
  if (const auto target = shm::parse_target(text)) return *target;
  node.refuse(std::string(shm::kTargetForms) + shm::target_hint(text, '"'));
}

std::uint64_t read_memory(const base::JsonNode& node) {
  if (const auto limit = shm::parse_memory_limit(node.as_text())) return *limit;
  node.refuse(std::string(shm::kMemoryLimitForms));
}

std::uint32_t read_give(const base::JsonNode& node) {
  const std::string text = node.as_text();
  if (const auto give = shm::parse_give(text)) return *give;
  node.refuse(std::string(shm::kGiveForms) + shm::give_hint(text, '"'));
}

/// N of "queue_limit", if it is given.
std::optional<std::uint32_t> read_limit(const std::optional<base::JsonNode>& limits,
                                        const char* key) {
  if (!limits) return std::nullopt;
  const auto node = limits->find(key);
  if (!node) return std::nullopt;
  return static_cast<std::uint32_t>(node->as_integer(1, shm::Spacing::kMax));
}

bool read_bool(const base::JsonNode& node, const char* key, bool otherwise) {
  const auto found = node.find(key);
  return found ? found->as_bool() : otherwise;
}

/// The policy that the published booleans and the policy string ask for. Keys that do not change
/// the result are checked too.
Control read_control(const base::JsonNode& node) {
  node.expect_object({"control", "controlsync", "controlEvent", "queue_limit", "policy"});
  const bool hooked = read_bool(node, "control", true);
  const bool sync = read_bool(node, "controlsync", false);
  const bool event = read_bool(node, "controlEvent", false);
  const auto limits = node.find("queue_limit");
  if (limits) limits->expect_object({"sync", "event_group"});
  const auto sync_limit = read_limit(limits, "sync");
  const auto event_limit = read_limit(limits, "event_group");
  if (sync && !sync_limit) node.complain("controlsync is true, but queue_limit.sync is missing");
  if (event && !event_limit) {
    node.complain("controlEvent is true, but queue_limit.event_group is missing");
  }
  const auto named = node.find("policy");
  shm::Policy policy{shm::PolicyKind::kGate};
  if (named) {
    policy = read_policy(*named);
  } else if (event) {
    policy = {shm::PolicyKind::kEvent, shm::Spacing::launches(*event_limit)};
  } else if (sync) {
    policy = {shm::PolicyKind::kSync, shm::Spacing::launches(*sync_limit)};
  }
  if (!hooked) return {};
  return {true, policy};
}

Arrival read_arrival(const base::JsonNode& node, double sleep_s) {
  node.expect_object({"kind", "period_ms", "jitter", "rate_per_s", "seed"});
  const base::JsonNode kind = node.member("kind");
  const std::string name = kind.as_text();
  Arrival arrival;
  const auto refuse_keys = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      const auto found = node.find(key);
      if (found) found->complain(fmt::format("does not apply to arrivals of kind \"{}\"", name));
    }
  };
  if (const auto seed = node.find("seed")) {
    arrival.seed = static_cast<std::uint64_t>(seed->as_integer(0, kMaxInt));
  }
  if (name == "closed") {
    refuse_keys({"period_ms", "jitter", "rate_per_s"});
    return arrival;
  }
  if (name == "periodic") {
    refuse_keys({"rate_per_s"});
    arrival.kind = Arrival::Kind::kPeriodic;
    arrival.period_ms = node.member("period_ms").as_number(0, kMaxSeconds * 1e3, true);
    if (const auto jitter = node.find("jitter")) arrival.jitter = jitter->as_number(0, 1);
  } else if (name == "poisson") {
    refuse_keys({"period_ms", "jitter"});
    arrival.kind = Arrival::Kind::kPoisson;
    arrival.rate_per_s = node.member("rate_per_s").as_number(0, 1e6, true);
  } else {
    kind.refuse("closed, periodic or poisson");
  }
  if (sleep_s > 0) {
    node.complain("sleep_time cannot be used with arrivals on a schedule: set sleep_time to 0");
  }
  return arrival;
}

std::optional<std::pair<int, int>> read_resize(const base::JsonNode& node) {
  constexpr std::int64_t kMaxSide = 65536;
  const bool resize = read_bool(node, "resize", false);
  std::optional<std::pair<int, int>> size;
  if (const auto found = node.find("resize_size")) {
    const std::string allowed = "[height, width]";
    const auto sides = found->elements(allowed);
    if (sides.size() != 2) found->refuse(allowed);
    size = {static_cast<int>(sides[0].as_integer(1, kMaxSide)),
            static_cast<int>(sides[1].as_integer(1, kMaxSide))};
  }
  if (!resize) return std::nullopt;
  if (!size) node.complain("resize is true, but resize_size is missing");
  return size;
}

void read_host_gap(const base::JsonNode& node, Model& model) {
  const auto pause = node.find("host_gap_us");
  const auto source = node.find("host_gap");
  if (pause) model.host_gap_us = pause->as_number(0, 1e6);
  if (source) {
    const std::string name = source->as_text();
    if (name != "none" && name != "recording") source->refuse("\"none\" or \"recording\"");
    model.host_gap_from_recording = name == "recording";
  }
  if (model.host_gap_from_recording && pause) {
    pause->complain("host_gap \"recording\" and host_gap_us cannot be used together");
  }
  if (model.cuda_graph && (model.host_gap_from_recording || model.host_gap_us > 0)) {
    node.complain("a CUDA graph is one launch, so there is no host gap between its kernels");
  }
}

/// Keys that do not depend on other keys.
void read_plain_keys(const base::JsonNode& node, Model& model) {
  const auto text = [&](const char* key, std::string& into) {
    if (const auto found = node.find(key)) into = found->as_text();
  };
  model.model_name = node.member("model_name").as_text();
  text("model_weight", model.model_weight);
  text("input_file_path", model.input_file_path);
  text("output_file_path", model.output_file_path);
  const base::JsonNode log = node.member("output_file_name");
  model.output_file_name = log.as_text();
  if (model.output_file_name.find('/') != std::string::npos) {
    log.refuse("a file name; its folder is output_file_path");
  }
  if (const auto sleep = node.find("sleep_time")) model.sleep_s = sleep->as_number(0, kMaxSeconds);
  if (const auto announce = node.find("announce_ms")) {
    model.announce_ms = announce->as_number(0, kMaxAnnounceMs);
  }
  if (const auto priority = node.find("priority")) {
    model.priority = static_cast<int>(priority->as_integer(0, 255));
  }
  if (const auto batch = node.find("batch_size")) {
    model.batch_size = static_cast<int>(batch->as_integer(1, 65536));
  }
  model.cuda_graph = read_bool(node, "cuda_graph", false);
}

Model read_model(const base::JsonNode& node, const Backends& backends) {
  node.expect_object({"model_name",       "model_weight",
                      "sleep_time",       "announce_ms",
                      "input_file_path",  "output_file_path",
                      "output_file_name", "priority",
                      "resize",           "resize_size",
                      "control",          "backend",
                      "batch_size",       "cuda_graph",
                      "arrival",          "recording",
                      "host_gap_us",      "host_gap",
                      "target",           "memory",
                      "weight",           "give"});
  Model model;
  read_plain_keys(node, model);
  model.resize = read_resize(node);
  if (const auto control = node.find("control")) model.control = read_control(*control);
  if (const auto target = node.find("target")) {
    model.target = read_target(*target);
    if (!model.control.hooked) target->complain("needs a control object with control true");
  }
  if (const auto memory = node.find("memory")) {
    model.memory = read_memory(*memory);
    if (!model.control.hooked) memory->complain("needs a control object with control true");
  }
  if (const auto weight = node.find("weight")) {
    model.weight = static_cast<std::uint32_t>(weight->as_integer(1, shm::kMostWeight));
    if (!model.control.hooked) weight->complain("needs a control object with control true");
  }
  if (const auto give = node.find("give")) {
    model.give = read_give(*give);
    if (!model.control.hooked) give->complain("needs a control object with control true");
  }
  if (const auto arrival = node.find("arrival")) {
    model.arrival = read_arrival(*arrival, model.sleep_s);
  }
  read_host_gap(node, model);
  choose_backend(node, backends, model);
  model.source = node.value();
  return model;
}

}  // namespace

Experiment read_experiment(const std::string& file, const Backends& backends) {
  Experiment experiment;
  experiment.file = file;
  experiment.source = base::parse_json_file(file);
  const base::JsonNode root(file, experiment.source);
  root.expect_object({"models", "exp_dur", "device_id", "mps"});
  if (const auto mps = root.find("mps")) experiment.mps = mps->as_bool();
  if (const auto duration = root.find("exp_dur")) {
    experiment.exp_dur_s = duration->as_number(0, kMaxSeconds, true);
  }
  if (const auto device = root.find("device_id")) {
    experiment.device_id = static_cast<int>(device->as_integer(0, kMaxInt));
  }
  const base::JsonNode models = root.member("models");
  const auto nodes = models.elements("a list of models");
  if (nodes.empty()) models.refuse("a list of at least one model");
  for (const base::JsonNode& node : nodes) experiment.models.push_back(read_model(node, backends));
  refuse_shared_logs(experiment);
  return experiment;
}

void refuse_shared_logs(const Experiment& experiment) {
  std::map<std::string, std::size_t> owners;
  for (std::size_t i = 0; i < experiment.models.size(); ++i) {
    const std::string log = experiment.models[i].output_file(".log");
    const auto [owner, fresh] = owners.emplace(fs::absolute(log).lexically_normal().string(), i);
    if (fresh) continue;
    throw base::UsageError(fmt::format("{}: /models/{}: the same log file as /models/{}: {}",
                                       experiment.file, i, owner->second, log));
  }
}

}  // namespace sluice::runner
