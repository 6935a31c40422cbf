#include "engine/torch/train/training.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <fmt/format.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/script.h>
#include <torch/serialize/archive.h>

#include <utility>

#include "engine/torch/load_parts.hpp"
#include "engine/torch/output_digest.hpp"
#include "engine/torch/torch_error.hpp"
#include "engine/torch/train/release.hpp"
#include "engine/torch/train/saved_state.hpp"

namespace sluice::engine {
namespace {

/// What most scripts take with SGD.
constexpr double kMomentum = 0.9;

c10::Device prepared_device(const TrainingOptions& options) {
  auto& context = at::globalContext();
  if (options.gpu) {
    // Before the first tensor.
    in_torch("PYTORCH_ALLOC_CONF", [] {
      namespace allocator = c10::CachingAllocator;
      allocator::setAllocatorSettings(allocator_settings(allocator::getAllocatorSettings()));
    });
  }
  if (options.deterministic) {
    context.setDeterministicCuDNN(true);
    context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  }
  at::manual_seed(options.seed);
  return torch_device(options.gpu);
}

torch::jit::Module load_module(const StoredModel& model, const c10::Device& device) {
  torch::jit::Module module = torch::jit::load(model.file, device);
  module.train();
  return module;
}

std::vector<at::Tensor> tensors_of(const auto& list) {
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& tensor : list) tensors.push_back(tensor);
  return tensors;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::vector<at::Tensor> parameters,
                                                        const TrainingOptions& options) {
  if (options.optimizer == OptimizerKind::kAdamW) {
    return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                                 torch::optim::AdamWOptions(options.lr));
  }
  return std::make_unique<torch::optim::SGD>(
      std::move(parameters), torch::optim::SGDOptions(options.lr).momentum(kMomentum));
}

/// Such as the auxiliary outputs of inception: the first is the model's own.
at::Tensor first_tensor(const c10::IValue& output) {
  if (output.isTensor()) return output.toTensor();
  if (output.isTuple() && !output.toTupleRef().elements().empty()) {
    return first_tensor(output.toTupleRef().elements()[0]);
  }
  throw base::RunError("the model returns no tensor to compute a loss of");
}

/// What identifies a training in its checkpoint.
std::string description_of(const TrainingOptions& options) {
  return fmt::format("{} batch {} {} lr {} seed {}", options.model.file, options.batch,
                     options.optimizer == OptimizerKind::kSgd ? "sgd" : "adamw", options.lr,
                     options.seed);
}

}  // namespace

class Training::Parts {
 public:
  explicit Parts(const TrainingOptions& options)
      : options_(options),
        device_(prepared_device(options)),
        module_(load_module(options.model, device_)),
        parameters_(tensors_of(module_.parameters())),
        buffers_(tensors_of(module_.buffers())),
        saved_(parameters_, buffers_, device_),
        optimizer_(make_optimizer(parameters_, options)),
        random_(at::make_generator<at::CPUGeneratorImpl>(options.seed)) {
    if (parameters_.empty()) {
      throw base::UsageError(options.model.file +
                             " has no parameters: it is frozen, so export the model with --train");
    }
    make_batch();
  }

  void run(std::size_t start, std::size_t items) {
    // Without the optimising executor: what it specialises for depends on earlier runs.
    const torch::jit::GraphOptimizerEnabledGuard unoptimised(false);
    const auto from = static_cast<std::int64_t>(start);
    const auto count = static_cast<std::int64_t>(items);
    const at::Tensor input = batch_.narrow(0, from, count);
    const at::Tensor output = first_tensor(module_.forward({input}));
    const double weight = static_cast<double>(items) / static_cast<double>(options_.batch);
    const at::Tensor loss = loss_of(input, output, from, count) * weight;
    loss.backward();
    micro_loss_ = loss.detach();
  }

  void keep() {
    saved_.keep();
    losses_ = losses_.defined() ? losses_ + micro_loss_ : micro_loss_;
    micro_loss_ = at::Tensor();
  }

  void step() {
    optimizer_->step();
    optimizer_->zero_grad();
    last_loss_ = std::exchange(losses_, {});
  }

  void write(std::ostream& out, const Progress& progress) const {
    torch::serialize::OutputArchive archive;
    archive.write("training", description_of(options_));
    archive.write("epoch", static_cast<std::int64_t>(progress.epoch));
    archive.write("step", static_cast<std::int64_t>(progress.step));
    archive.write("model", c10::IValue(model_tensors()));
    archive.write("random", c10::IValue(states_of(generators_of(device_))));
    torch::serialize::OutputArchive optimizer(archive.compilation_unit());
    optimizer_->save(optimizer);
    archive.write("optimizer", optimizer);
    archive.save_to(out);
  }

  Progress read(std::istream& in) {
    // A new one, because load() keeps the state of parameters that the archive has no state of.
    // Now, so that the GPU does not hold both states.
    optimizer_ = make_optimizer(parameters_, options_);
    torch::serialize::InputArchive archive;
    archive.load_from(in, device_);
    const std::string description = value(archive, "training").toStringRef();
    if (description != description_of(options_)) {
      throw base::RunError(fmt::format("it is of another training ({}, not {})", description,
                                       description_of(options_)));
    }
    const at::NoGradGuard no_grad;
    const auto contents = value(archive, "model").toTensorVector();
    const auto tensors = model_tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(contents.at(i));
    torch::serialize::InputArchive optimizer;
    archive.read("optimizer", optimizer);
    optimizer_->load(optimizer);
    optimizer_->zero_grad();
    losses_ = at::Tensor();
    auto generators = generators_of(device_);
    std::vector<at::Tensor> random;
    for (const at::Tensor& state : value(archive, "random").toTensorVector()) {
      random.push_back(state.to(at::kCPU));
    }
    set_states(generators, random);
    return {static_cast<std::size_t>(value(archive, "epoch").toInt()),
            static_cast<std::size_t>(value(archive, "step").toInt())};
  }

  [[nodiscard]] std::vector<at::Tensor> model_tensors() const {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& parameter : parameters_) tensors.push_back(parameter.detach());
    tensors.insert(tensors.end(), buffers_.begin(), buffers_.end());
    return tensors;
  }

  [[nodiscard]] std::optional<MemoryUse> memory() const {
    if (!device_.is_cuda()) return std::nullopt;
    using c10::CachingAllocator::StatType;
    constexpr auto kAll = static_cast<std::size_t>(StatType::AGGREGATE);
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device_.index());
    const auto bytes = [](std::int64_t count) { return static_cast<std::uint64_t>(count); };
    return MemoryUse{bytes(stats.allocated_bytes[kAll].current),
                     bytes(stats.allocated_bytes[kAll].peak),
                     bytes(stats.reserved_bytes[kAll].current)};
  }

  [[nodiscard]] const c10::Device& device() const { return device_; }
  [[nodiscard]] const at::Tensor& last_loss() const { return last_loss_; }
  [[nodiscard]] SavedState& saved() { return saved_; }

 private:
  [[nodiscard]] bool is_text() const { return options_.model.task == "text"; }

  /// The rows of the table of tokens, as encoder.py names it.
  [[nodiscard]] std::int64_t vocabulary() const {
    for (const auto& parameter : module_.named_parameters()) {
      if (parameter.name.ends_with("tokens.weight")) return parameter.value.size(0);
    }
    throw base::RunError("the model has no table of tokens, a parameter named tokens.weight");
  }

  /// Random images or token ids.
  void make_batch() {
    std::vector<std::int64_t> shape{static_cast<std::int64_t>(options_.batch)};
    const auto& item = options_.model.input;
    shape.insert(shape.end(), item.begin(), item.end());
    if (is_text()) {
      batch_ = at::randint(vocabulary(), shape, random_, at::kLong).to(device_);
    } else {
      batch_ = at::rand(shape, random_, at::kFloat).to(device_, parameters_[0].scalar_type());
    }
  }

  at::Tensor loss_of(const at::Tensor& input, const at::Tensor& output, std::int64_t from,
                     std::int64_t count) {
    if (is_text()) {
      const std::int64_t length = output.size(1) - 1;
      return at::cross_entropy_loss(output.narrow(1, 0, length).flatten(0, 1).to(at::kFloat),
                                    input.narrow(1, 1, length).flatten());
    }
    // Drawn once, also if the launch that copies them is refused: the micro-batch comes again.
    if (!drawn_labels_.defined()) {
      drawn_labels_ = at::randint(output.size(1), {batch_.size(0)}, random_, at::kLong);
    }
    if (!labels_.defined()) labels_ = drawn_labels_.to(device_);
    return at::cross_entropy_loss(output.to(at::kFloat), labels_.narrow(0, from, count));
  }

  static c10::IValue value(torch::serialize::InputArchive& archive, const char* key) {
    c10::IValue found;
    archive.read(key, found);
    return found;
  }

  TrainingOptions options_;
  c10::Device device_;
  torch::jit::Module module_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> buffers_;
  SavedState saved_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  at::Generator random_;  ///< Of the data.
  at::Tensor batch_;
  at::Tensor drawn_labels_;  ///< Known with the number of classes, after the first forward pass.
  at::Tensor labels_;        ///< The same on the device.
  at::Tensor micro_loss_;
  at::Tensor losses_;  ///< Of the micro-batches since the last step.
  at::Tensor last_loss_;
};

Training::Training(const TrainingOptions& options) : file_(options.model.file) {
  parts_ = in_torch(file_, [&] { return std::make_unique<Parts>(options); });
}

Training::~Training() = default;

void Training::save() {
  in_torch(file_, [&] { parts_->saved().save(); });
}

void Training::run(std::size_t start, std::size_t items) {
  in_torch(file_, [&] { parts_->run(start, items); });
}

void Training::keep() {
  in_torch(file_, [&] { parts_->keep(); });
}

void Training::drop() { parts_->saved().drop_gradients(); }

void Training::restore() {
  in_torch(file_, [&] { parts_->saved().restore(); });
}

void Training::free_memory(std::uint64_t most) {
  if (parts_->device().is_cuda()) {
    in_torch(file_, [&] { release_down_to(most, parts_->device()); });
  }
}

std::optional<MemoryUse> Training::memory() const { return parts_->memory(); }

void Training::restart_peak() {
  if (parts_->device().is_cuda()) {
    c10::cuda::CUDACachingAllocator::resetPeakStats(parts_->device().index());
  }
}

void Training::step() {
  in_torch(file_, [&] { parts_->step(); });
}

double Training::loss() const {
  return in_torch(file_, [&] { return parts_->last_loss().item<double>(); });
}

void Training::write_state(std::ostream& out, const Progress& progress) const {
  in_torch(file_, [&] { parts_->write(out, progress); });
}

Progress Training::read_state(std::istream& in) {
  return in_torch(file_, [&] { return parts_->read(in); });
}

std::string Training::digest() const {
  return in_torch(file_, [&] { return digest_of(c10::IValue(parts_->model_tensors())); });
}

}  // namespace sluice::engine
