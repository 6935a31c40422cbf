#pragma once
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>

#include "engine/store/model_store.hpp"
#include "engine/train/droppable.hpp"

namespace sluice::engine {

enum class OptimizerKind { kSgd, kAdamW };

struct TrainingOptions {
  StoredModel model;       ///< A file that was exported with --train.
  std::optional<int> gpu;  ///< None: the CPU.
  std::size_t batch = 1;
  OptimizerKind optimizer = OptimizerKind::kSgd;
  double lr = 0.01;
  std::uint64_t seed = 0;
  bool deterministic = false;  ///< The same bits on every run on a GPU.
};

/// How far a training is.
struct Progress {
  std::size_t epoch = 0;
  std::size_t step = 0;  ///< Of this epoch.
};

/// A training of a TorchScript model on one random batch, which is the same in every step. Losses:
/// cross entropy of the classes, or of the next token of a text. Not thread-safe.
///
/// Errors of LibTorch are base::RunError or OutOfMemory, and name the file.
class Training : public Droppable {
 public:
  explicit Training(const TrainingOptions& options);
  ~Training() override;

  void save() override;
  void run(std::size_t start, std::size_t items) override;
  void keep() override;
  void drop() override;
  void restore() override;
  void free_memory(std::uint64_t most) override;
  [[nodiscard]] std::optional<MemoryUse> memory() const override;
  void restart_peak() override;

  /// The optimizer step, with the gradients of the micro-batches since the last one.
  void step();
  /// The mean loss of the batch before the last step. Waits for the GPU.
  [[nodiscard]] double loss() const;

  /// Writes all that decides how the training goes on: parameters, buffers, optimizer and random
  /// generators.
  void write_state(std::ostream& out, const Progress& progress) const;
  /// Reads what write_state() wrote. Throws base::RunError if it is of another training; this
  /// training must not go on then.
  Progress read_state(std::istream& in);

  /// A hash of every bit of parameters and buffers.
  [[nodiscard]] std::string digest() const;

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
  std::string file_;
};

}  // namespace sluice::engine
