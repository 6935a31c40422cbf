#include "intercept/client/config.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/fd.hpp"
#include "base/node_service.hpp"
#include "base/session.hpp"
#include "intercept/driver/log.hpp"
#include "shm/client_name.hpp"
#include "shm/give.hpp"
#include "shm/labels.hpp"
#include "shm/memory_limit.hpp"
#include "shm/session.hpp"
#include "shm/slice.hpp"
#include "shm/weight.hpp"

namespace sluice::intercept {
namespace {

/// Kubernetes puts the name of its namespace into every pod that has a service account's token.
constexpr const char* kNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
constexpr std::uint64_t kDefaultTraceMiB = 1024;
constexpr std::uint64_t kLeastTraceMiB = 16;
constexpr std::uint64_t kMostTraceMiB = 1 << 20;

std::optional<std::string_view> variable(const char* name) noexcept {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

/// The start of a file; empty if it cannot be read.
std::string text_of(const char* path) {
  std::string text(4096, '\0');
  const base::Fd file(open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t size = file ? read(file.get(), text.data(), text.size()) : 0;
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

/// Returns whether SLUICE_PRIORITY has a priority; if not, `priority` is 0.
bool read_priority(std::uint8_t& priority) {
  priority = 0;
  const auto text = variable("SLUICE_PRIORITY");
  if (!text) return false;
  const auto result = std::from_chars(text->data(), text->data() + text->size(), priority);
  if (result.ec == std::errc{} && result.ptr == text->data() + text->size()) return true;
  priority = 0;
  Line(Level::kWarn) << "SLUICE_PRIORITY=" << *text << " is not 0 to 255; using 0";
  return false;
}

std::string read_label() {
  std::string label(variable("SLUICE_LABEL").value_or(""));
  if (const std::string fault = shm::check_labels(label); !fault.empty()) {
    Line(Level::kWarn) << "SLUICE_LABEL: " << fault << "; using none";
    label.clear();
  }
  if (const auto job = variable("SLURM_JOB_ID")) {
    label = shm::with_label(label, "job", std::string(*job));
  }
  // The host name of a pod is the pod's name.
  const auto host = variable("HOSTNAME");
  if (host && variable("KUBERNETES_SERVICE_HOST")) {
    label = shm::with_label(label, "namespace", text_of(kNamespaceFile));
    label = shm::with_label(label, "pod", std::string(*host));
  }
  return label;
}

/// On by default.
bool read_switch(const char* name) {
  const std::string_view text = variable(name).value_or("1");
  if (text != "0" && text != "1") {
    Line(Level::kWarn) << name << "=" << text << " is not 0 or 1; using 1";
  }
  return text != "0";
}

/// Only the driver knows whether the process is a client at all.
shm::MpsWord read_mps(const std::string& session) {
  shm::MpsWord mps{shm::MpsWord::Mode::kOther, 0, 0, 0};
  std::string_view pipes = variable("CUDA_MPS_PIPE_DIRECTORY").value_or("");
  const std::string folder = base::mps_folder(session) + "/";
  if (pipes.starts_with(folder)) {
    pipes.remove_prefix(folder.size());
    const char* const end = pipes.data() + pipes.size();
    const auto result = std::from_chars(pipes.data(), end, mps.daemon);
    if (result.ec == std::errc{} && result.ptr == end) mps.mode = shm::MpsWord::Mode::kSession;
  }
  const std::string_view percent = variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").value_or("");
  std::from_chars(percent.data(), percent.data() + percent.size(), mps.percent);
  return mps;
}

}  // namespace

std::uint64_t memory_limit_of_environment() noexcept {
  const auto text = variable("SLUICE_MEMORY");
  return text ? shm::parse_memory_limit(*text).value_or(shm::kLeastMemoryLimit) : 0;
}

Config read_config() {
  Config config{{},
                0,
                shm::kDefaultPolicy,
                {},
                shm::kSliceAuto,
                0,
                0,
                shm::kDefaultGive,
                true,
                true,
                {},
                kDefaultTraceMiB << 20U,
                {},
                {},
                {},
                {}};
  if (const auto text = variable("SLUICE_SESSION")) {
    if (base::valid_session_name(*text)) {
      config.session = *text;
    } else {
      // Not `default`: that would leave the limits of the node service.
      config.session = base::default_session();
      Line(Level::kWarn) << "SLUICE_SESSION=" << *text << " is no session name; using "
                         << config.session.c_str();
    }
  } else {
    config.session = base::default_session();
  }
  config.mps = read_mps(config.session);
  const bool chosen = read_priority(config.priority);
  if (const auto text = variable("SLUICE_POLICY")) {
    if (const auto policy = shm::parse_policy(*text)) {
      config.policy = *policy;
    } else {
      Line(Level::kWarn) << "SLUICE_POLICY=" << *text << " is no policy: " << shm::kPolicyForms
                         << "; using " << shm::to_string(shm::kDefaultPolicy).c_str();
    }
  }
  if (const auto text = variable("SLUICE_TARGET")) {
    const auto target = shm::parse_target(*text);
    if (target) config.target = *target;
    if (!target) {
      Line(Level::kWarn) << "SLUICE_TARGET=" << *text << " is no target: " << shm::kTargetForms
                         << "; using none";
    }
  }
  if (const auto text = variable("SLUICE_SLICE")) {
    const auto slice = shm::parse_slice(*text);
    if (slice) config.slice = *slice;
    if (!slice) {
      Line(Level::kWarn) << "SLUICE_SLICE=" << *text << " is no time slice: " << shm::kSliceForms
                         << "; using auto";
    }
  }
  config.memory = memory_limit_of_environment();
  const auto memory = variable("SLUICE_MEMORY");
  if (memory && !shm::parse_memory_limit(*memory)) {
    Line(Level::kWarn) << "SLUICE_MEMORY: " << shm::check_memory_limit(std::string(*memory))
                       << "; using the least limit, "
                       << shm::memory_limit_text(shm::kLeastMemoryLimit).c_str();
  }
  if (const auto text = variable("SLUICE_WEIGHT")) {
    const auto weight = shm::parse_weight(*text);
    if (weight) config.weight = *weight;
    if (!weight) {
      Line(Level::kWarn) << "SLUICE_WEIGHT=" << *text << " is no weight: " << shm::kWeightForms
                         << "; using none";
    }
  }
  if (const auto text = variable("SLUICE_GIVE")) {
    const auto give = shm::parse_give(*text);
    if (give) config.give = *give;
    if (!give) {
      Line(Level::kWarn) << "SLUICE_GIVE=" << *text << " is not " << shm::kGiveForms << "; using "
                         << shm::give_text(shm::kDefaultGive).c_str();
    }
  }
  config.label = read_label();
  // A program that is preloaded without a priority would look like one that was meant to be best
  // effort.
  if (!chosen) config.label = shm::with_label(config.label, "priority", "default");
  config.predict = read_switch("SLUICE_PREDICT");
  config.gpu_time = read_switch("SLUICE_GPU_TIME");
  const auto name = variable("SLUICE_NAME");
  config.name = name ? std::string(*name) : shm::client_name(text_of("/proc/self/cmdline"));
  if (const auto text = variable("SLUICE_WAITS")) config.waits = *text;
  if (const auto text = variable("SLUICE_TRACE")) config.trace = *text;
  if (const auto text = variable("SLUICE_TRACE_LIMIT_MIB")) {
    std::uint64_t mib = 0;
    const auto result = std::from_chars(text->data(), text->data() + text->size(), mib);
    if (result.ec == std::errc{} && result.ptr == text->data() + text->size() &&
        mib >= kLeastTraceMiB && mib <= kMostTraceMiB) {
      config.trace_limit = mib << 20U;
    } else {
      Line(Level::kWarn) << "SLUICE_TRACE_LIMIT_MIB=" << *text << " is not " << kLeastTraceMiB
                         << " to " << kMostTraceMiB << "; using " << kDefaultTraceMiB;
    }
  }
  return config;
}

}  // namespace sluice::intercept
