#include "synthetic.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "predictor/math/metrics.hpp"

namespace sluice::test {

using predictor::Label;

predictor::DeviceInfo made_up_device(const std::string& name, double peak) {
  return {.name = name,
          .clock_mhz = 1000,
          .shared_kb = 256,
          .bandwidth_gbs = 4096,
          .fp32_tflops = peak};
}

std::vector<Label> Synthetic::on(std::size_t device) const {
  std::vector<Label> found;
  std::ranges::copy_if(data.labels, std::back_inserter(found),
                       [&](const Label& label) { return label.query.device == device; });
  return found;
}

Synthetic synthetic(std::size_t tasks, std::size_t programs_of_each, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> power(0, 8);
  Synthetic made{{}, {made_up_device("H200", 33.792), made_up_device("H200@32", 8.192)}};
  made.data.devices = {"H200", "H200@32"};
  for (std::size_t t = 0; t < tasks; ++t) {
    const double size = power(random);
    made.data.tasks.push_back({.id = "task" + std::to_string(t),
                               .name = t % 2 == 0 ? "dense" : "conv2d",
                               .target = "cuda",
                               .workload_key = "[]",
                               .flop = 1e6 * std::exp2(size),
                               .bytes = 1e4 * std::exp2(size)});
    for (std::size_t p = 0; p < programs_of_each; ++p) {
      predictor::CountedKernel kernel{.blocks = 132, .threads = 128};
      kernel.counts.fma = 16 * std::exp2(size);
      kernel.counts.shared_loads = kernel.counts.fma / 4;
      kernel.counts.shared_load_wavefronts = kernel.counts.fma * std::exp2(power(random) / 4);
      kernel.counts.syncs = std::exp2(power(random));
      kernel.counts.local_bytes = std::exp2(power(random));
      predictor::Program program{.id = "p" + std::to_string(t) + "." + std::to_string(p),
                                 .task = t,
                                 .index = static_cast<std::int64_t>(p),
                                 .leaves = 2,
                                 .kernels = {kernel},
                                 .compiled = predictor::Compiled{.registers = 40}};
      const double us = 2 + kernel.counts.shared_load_wavefronts / 250 + kernel.counts.syncs / 10 +
                        kernel.counts.local_bytes / 100;
      made.data.programs.push_back(program);
      const std::size_t number = made.data.programs.size() - 1;
      made.data.labels.push_back({{number, 0}, 1e-6 * us});
      made.data.labels.push_back({{number, 1}, 3e-6 * us});
    }
  }
  return made;
}

double error_of(const predictor::LatencyModel& model, const Synthetic& made,
                std::span<const Label> labels) {
  const auto predicted = model.predict(made.data, made.devices, predictor::queries_of(labels));
  double sum = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    sum += predictor::relative_error(labels[i].seconds, predicted[i]);
  }
  return sum / static_cast<double>(labels.size());
}

}  // namespace sluice::test
