#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <map>
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
  SavedState(std::vector<at::Tensor> parameters, const std::vector<at::Tensor>& buffers,
             const c10::Device& device);

  void save();
  void keep();
  void drop_gradients();
  /// Buffers and random generators.
  void restore();

 private:
  /// Buffers of one type: one launch copies all of them.
  struct Group {
    std::vector<at::Tensor> buffers;
    std::vector<at::Tensor> contents;
  };

  std::vector<at::Tensor> parameters_;
  std::map<at::ScalarType, Group> groups_;
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> gradients_;  ///< Of the earlier micro-batches; undefined: none.
  std::vector<at::Tensor> random_;
};

}  // namespace sluice::engine
