#include "base/gpus.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/child.hpp"
#include "base/command_line.hpp"
#include "base/error.hpp"

namespace sluice::base {
namespace {

/// The name of the simulated GPU has its scale: "... (scale 10)". The scale in our environment may
/// be another one if the session was already running.
double scale_in_name(const std::string& name) {
  constexpr double kDefaultScale = 10;
  const std::string mark = "(scale ";
  const std::size_t at = name.find(mark);
  if (at == std::string::npos) return kDefaultScale;
  const double scale = std::strtod(name.c_str() + at + mark.size(), nullptr);
  return scale > 0 ? scale : kDefaultScale;
}

}  // namespace

Gpus parse_gpus(const std::string& json) {
  try {
    const auto answer = nlohmann::json::parse(json);
    Gpus gpus;
    gpus.simulated = answer.at("kind") == "simulated";
    gpus.why_simulated = answer.value("why_simulated", "");
    for (const auto& device : answer.at("devices")) {
      gpus.names.push_back(device.at("name").get<std::string>());
      gpus.archs.push_back(device.value("arch", ""));
      const int sms = device.value("sms", 0);
      gpus.mps = gpus.mps || device.value("mps", false);
      gpus.least_sms = gpus.least_sms == 0 ? sms : std::min(gpus.least_sms, sms);
      gpus.most_memory = std::max(gpus.most_memory, device.value("memory_bytes", std::uint64_t{0}));
    }
    if (gpus.names.empty()) throw RunError("sluice gpus lists no device");
    if (gpus.simulated) gpus.time_scale = scale_in_name(gpus.names.front());
    return gpus;
  } catch (const nlohmann::json::exception& error) {
    throw RunError(std::string("cannot parse the output of sluice gpus: ") + error.what());
  }
}

Gpus query_gpus(const Install& install, const std::string& choice, const std::string& session) {
  const Captured answer = capture({install.program("sluice-gpus"), "--gpu", choice, "--json"},
                                  {"SLUICE_SESSION=" + session});
  if (answer.exit_code != 0) {
    const std::string why = printed_error("sluice gpus", answer.err);
    throw RunError(why.empty() ? "sluice gpus could not be run; build or install it again"
                               : why + "; --gpu sim takes the simulated one");
  }
  return parse_gpus(answer.out);
}

std::string describe_gpu(const Gpus& gpus, int device) {
  const std::string& name = gpus.names.at(static_cast<std::size_t>(device));
  if (!gpus.simulated) return fmt::format("GPU {}: {} (real)", device, name);
  return fmt::format(
      "GPU {}: {}: SIMULATED; its time passes {:g} times slower, and the figures are in GPU time",
      device, name, gpus.time_scale);
}

}  // namespace sluice::base
