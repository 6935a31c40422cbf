#include "predictor/train/training.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace sluice::predictor {
namespace {

constexpr std::int64_t kProbes = 20;
/// Programs of the other domain that are compared with a batch.
constexpr std::int64_t kCompared = 2048;
/// Steps from the least to the greatest rate of a cycle.
constexpr std::int64_t kCycleSteps = 2000;
constexpr double kWarmUp = 0.05;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Training::Training(std::shared_ptr<LabelNetwork> network, const Config& config,
                   const TrainOptions& options, const LatencyModel& model)
    : network_(std::move(network)),
      config_(config),
      options_(options),
      model_(model),
      optimizer_(network_->parameters(),
                 torch::optim::AdamOptions(config.lr).weight_decay(config.weight_decay)),
      where_(network_->parameters().front().device()) {}

double Training::elapsed_s() const { return seconds_since(begin_) - probe_s_; }

bool Training::out_of_time() const {
  return options_.limit_s > 0 && elapsed_s() >= options_.limit_s;
}

torch::Tensor Training::draw(std::int64_t from, std::int64_t count) const {
  const auto rows = count < from ? torch::randperm(from, torch::kLong).slice(0, 0, count)
                                 : torch::arange(from, torch::kLong);
  return rows.to(where_);
}

torch::Tensor Training::loss_of(const Samples& samples, const torch::Tensor& latent) {
  const auto error = network_->decode(latent) - samples.labels;
  // Labels are at least 1 in training, but those of other programs may be lower.
  const auto relative = error.abs() / samples.labels.clamp_min(0.1);
  return config_.mse * error.square().mean() + config_.mape * relative.mean();
}

void Training::set_rate(std::int64_t step, std::int64_t total_steps) {
  double factor = 1;
  if (config_.schedule == "cosine") {
    double progress = static_cast<double>(step) / static_cast<double>(total_steps);
    if (options_.limit_s > 0) progress = std::max(progress, elapsed_s() / options_.limit_s);
    progress = std::min(progress, 1.0);
    factor = progress < kWarmUp ? std::max(progress, 0.001) / kWarmUp
                                : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  } else if (config_.schedule == "cycle") {
    const std::int64_t place = step % (2 * kCycleSteps);
    const double height =
        1 - std::abs(1 - static_cast<double>(place) / static_cast<double>(kCycleSteps));
    factor = 0.1 + height * (10 - 0.1);
  }
  for (auto& group : optimizer_.param_groups()) group.options().set_lr(config_.lr * factor);
}

Training::Sums Training::run_epoch(const Samples& source, const Samples* tune,
                                   const Batch* unlabelled, std::int64_t& steps,
                                   std::int64_t total_steps) {
  auto sum = torch::zeros({}, where_);
  Sums sums;
  const auto order = torch::randperm(source.size(), torch::kLong).to(where_);
  const bool compare = config_.cmd > 0 && unlabelled != nullptr;
  for (std::int64_t begin = 0; begin < source.size(); begin += config_.batch) {
    const auto rows = order.slice(0, begin, std::min(begin + config_.batch, source.size()));
    // Batch normalisation of one program has no variance.
    if (rows.size(0) < 2) continue;
    set_rate(steps++, total_steps);
    const Samples batch{source.batch.at(rows), source.labels.index_select(0, rows)};
    const auto latent = network_->latent(batch.batch);
    auto loss = loss_of(batch, latent);
    if (tune != nullptr && tune->size() > 1) {
      const auto few = draw(tune->size(), config_.batch);
      const Samples tuned{tune->batch.at(few), tune->labels.index_select(0, few)};
      loss = loss + loss_of(tuned, network_->latent(tuned.batch));
    }
    if (compare) {
      const auto other = draw(unlabelled->counts.size(0), kCompared);
      loss = loss + config_.cmd * config_.mse *
                        latent_discrepancy(latent, network_->latent(unlabelled->at(other)));
    }
    optimizer_.zero_grad();
    loss.backward();
    optimizer_.step();
    sum += loss.detach();
    sums.batches += 1;
    if (out_of_time()) break;
  }
  sums.loss = sum.item<double>();
  return sums;
}

void Training::run(const std::string& phase, std::int64_t epochs, const Samples& source,
                   const Samples* tune, const Batch* unlabelled) {
  const std::int64_t per_epoch = (source.size() + config_.batch - 1) / config_.batch;
  const std::int64_t between_probes = std::max<std::int64_t>(1, epochs / kProbes);
  std::int64_t steps = 0;
  for (std::int64_t epoch = 0; epoch < epochs && !out_of_time(); ++epoch) {
    network_->train();
    const Sums sums = run_epoch(source, tune, unlabelled, steps, per_epoch * epochs);
    network_->eval();
    EpochLine line{phase, epoch, elapsed_s(), sums.loss / std::max(sums.batches, 1.0),
                   std::numeric_limits<double>::quiet_NaN()};
    if (options_.probe && ((epoch + 1) % between_probes == 0 || epoch + 1 == epochs)) {
      const auto begin = std::chrono::steady_clock::now();
      line.mape = options_.probe(model_);
      probe_s_ += seconds_since(begin);
    }
    if (options_.on_epoch) options_.on_epoch(line);
  }
}

}  // namespace sluice::predictor
