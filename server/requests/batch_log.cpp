#include "server/requests/batch_log.hpp"

#include <fmt/format.h>

namespace sluice::server {

std::string batch_line(const Execution& execution, std::uint64_t output_ns, std::uint64_t now_ns) {
  const auto ms = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e6; };
  const auto& instances = execution.model->instances;
  const auto found = std::find_if(instances.begin(), instances.end(), [&](const auto& instance) {
    return instance.get() == execution.instance;
  });
  std::string line = fmt::format(
      "[Inference]: {} (rank {}) set_input_ms={:.2f} infer_ms={:.2f} get_output_ms={:.2f}",
      execution.model->config.name, found - instances.begin(), ms(execution.input_ns),
      ms(execution.blocks_ns()), ms(output_ns));
  if (execution.turn_wait_ns > 0) {
    line += fmt::format(" wait_train_stop_ms={:.2f}", ms(execution.turn_wait_ns));
  }
  return line + fmt::format(" total_infer_ms={:.2f}", ms(now_ns - execution.begun_ns));
}

}  // namespace sluice::server
