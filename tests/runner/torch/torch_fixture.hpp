#pragma once
#include "tests/runner/run_fixture.hpp"

namespace sluice::test {

/// Runs tiny models with the LibTorch worker, on the CPU. Skipped where there is no such worker.
class TorchTest : public RunTest {
 protected:
  void SetUp() override;

  /// One entry of "models": a model of the store that make_store.py made, on the CPU.
  [[nodiscard]] static nlohmann::json model(const std::string& name, const std::string& log,
                                            int priority = 0);
  void write_models(const std::vector<nlohmann::json>& models) const;
  /// `sluice run exp.json --gpu sim`, on whose machine models run on the CPU.
  [[nodiscard]] base::Captured sluice_run(std::vector<std::string> more = {});
  /// Runs the one model for a few jobs, without the runner. Returns the hashes of its outputs.
  [[nodiscard]] std::vector<std::string> digests(const nlohmann::json& model);
  [[nodiscard]] static std::string image(const std::string& name);

  /// What the worker said last in digests().
  base::Captured worker_;
};

}  // namespace sluice::test
