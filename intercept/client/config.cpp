#include "intercept/client/config.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/fd.hpp"
#include "intercept/client/log.hpp"
#include "shm/client_name.hpp"
#include "shm/labels.hpp"
#include "shm/session.hpp"

namespace sluice::intercept {
namespace {

constexpr std::uint64_t kDefaultTraceMiB = 1024;
constexpr std::uint64_t kLeastTraceMiB = 16;
constexpr std::uint64_t kMostTraceMiB = 1 << 20;

std::optional<std::string_view> variable(const char* name) noexcept {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::string own_command_line() {
  std::string text(4096, '\0');
  const base::Fd file(open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  const ssize_t size = file ? read(file.get(), text.data(), text.size()) : 0;
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

std::string read_label() {
  std::string label(variable("SLUICE_LABEL").value_or(""));
  if (const std::string fault = shm::check_labels(label); !fault.empty()) {
    Line(Level::kWarn) << "SLUICE_LABEL: " << fault << "; using none";
    label.clear();
  }
  const auto job = variable("SLURM_JOB_ID");
  return job ? shm::with_label(label, "job", std::string(*job)) : label;
}

/// On by default.
bool read_switch(const char* name) {
  const std::string_view text = variable(name).value_or("1");
  if (text != "0" && text != "1") {
    Line(Level::kWarn) << name << "=" << text << " is not 0 or 1; using 1";
  }
  return text != "0";
}

}  // namespace

Config read_config() {
  Config config{std::string(base::kDefaultSession),
                0,
                shm::kDefaultPolicy,
                {},
                true,
                true,
                {},
                kDefaultTraceMiB << 20U,
                {},
                {}};
  if (const auto text = variable("SLUICE_SESSION")) {
    if (base::valid_session_name(*text)) {
      config.session = *text;
    } else {
      Line(Level::kWarn) << "SLUICE_SESSION=" << *text << " is no session name; using default";
    }
  }
  if (const auto text = variable("SLUICE_PRIORITY")) {
    const auto result = std::from_chars(text->data(), text->data() + text->size(), config.priority);
    if (result.ec != std::errc{} || result.ptr != text->data() + text->size()) {
      config.priority = 0;
      Line(Level::kWarn) << "SLUICE_PRIORITY=" << *text << " is not 0 to 255; using 0";
    }
  }
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
  config.label = read_label();
  config.predict = read_switch("SLUICE_PREDICT");
  config.gpu_time = read_switch("SLUICE_GPU_TIME");
  const auto name = variable("SLUICE_NAME");
  config.name = name ? std::string(*name) : shm::client_name(own_command_line());
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
