#include "engine/torch/train/saved_state.hpp"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <mutex>
#include <utility>

namespace sluice::engine {

std::vector<at::Generator> generators_of(const c10::Device& device) {
  std::vector<at::Generator> generators{at::globalContext().defaultGenerator(at::kCPU)};
  if (!device.is_cpu()) generators.push_back(at::globalContext().defaultGenerator(device));
  return generators;
}

std::vector<at::Tensor> states_of(const std::vector<at::Generator>& generators) {
  std::vector<at::Tensor> states;
  for (at::Generator generator : generators) {  // a handle
    const std::lock_guard lock(generator.mutex());
    states.push_back(generator.get_state());
  }
  return states;
}

void set_states(std::vector<at::Generator>& generators, const std::vector<at::Tensor>& states) {
  for (std::size_t i = 0; i < generators.size(); ++i) {
    const std::lock_guard lock(generators[i].mutex());
    generators[i].set_state(states.at(i));
  }
}

SavedState::SavedState(std::vector<at::Tensor> parameters, const std::vector<at::Tensor>& buffers,
                       const c10::Device& device)
    : parameters_(std::move(parameters)), generators_(generators_of(device)) {
  for (const at::Tensor& buffer : buffers) {
    Group& group = groups_[buffer.scalar_type()];
    group.buffers.push_back(buffer);
    group.contents.push_back(at::empty_like(buffer));
  }
}

void SavedState::save() {
  const at::NoGradGuard no_grad;
  gradients_.clear();
  for (at::Tensor& parameter : parameters_) {
    gradients_.push_back(std::exchange(parameter.mutable_grad(), at::Tensor()));
  }
  for (auto& [type, group] : groups_) at::_foreach_copy_(group.contents, group.buffers);
  random_ = states_of(generators_);
}

void SavedState::keep() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> earlier;
  std::vector<at::Tensor> own;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (!gradients_[i].defined()) continue;
    if (gradient.defined()) {
      earlier.push_back(gradients_[i]);
      own.push_back(gradient);
    }
    gradient = std::move(gradients_[i]);
  }
  if (!own.empty()) at::_foreach_add_(earlier, own);
  gradients_.clear();
}

void SavedState::drop_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].mutable_grad() = std::move(gradients_[i]);
  }
  gradients_.clear();
}

void SavedState::restore() {
  const at::NoGradGuard no_grad;
  for (auto& [type, group] : groups_) at::_foreach_copy_(group.buffers, group.contents);
  set_states(generators_, random_);
}

}  // namespace sluice::engine
