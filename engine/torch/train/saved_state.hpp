#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

namespace sluice::engine {

/// The random generators of the CPU and, if `device` is a GPU, of that.
[[nodiscard]] std::vector<at::Generator> generators_of(const c10::Device& device);

/// The states of generators, as tensors in host memory.
[[nodiscard]] std::vector<at::Tensor> states_of(const std::vector<at::Generator>& generators);
void set_states(std::vector<at::Generator>& generators, const std::vector<at::Tensor>& states);

/// What a micro-batch may change, saved so that a dropped one is taken back to the bit.
///
/// Gradients are put aside while a micro-batch runs, so that its own gradients accumulate from
/// nothing: dropping them needs neither a copy nor a launch. Adding them up afterwards computes the
/// same bits as autograd does.
class SavedState {
 public:
  SavedState(std::vector<at::Tensor> parameters, std::vector<at::Tensor> buffers,
             const c10::Device& device);

  void save();
  void keep();
  void drop_gradients();
  /// Buffers and random generators.
  void restore();

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> buffers_;
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> gradients_;  ///< Of the earlier micro-batches; undefined: none.
  std::vector<at::Tensor> contents_;   ///< Of the buffers.
  std::vector<at::Tensor> random_;
};

}  // namespace sluice::engine
