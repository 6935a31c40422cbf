#include "tests/runner/torch/torch_fixture.hpp"

#include <sstream>

namespace sluice::test {

using nlohmann::json;

void TorchTest::SetUp() {
  if (std::string(SLUICE_TEST_TORCH_VERSION).empty()) {
    GTEST_SKIP() << "built without LibTorch (./x torch fetches it)";
  }
  setenv("SLUICE_MODELS", SLUICE_TEST_DATA "/store", 1);
  setenv("SLUICE_PYTHON", SLUICE_TEST_PYTHON, 1);
  // The models are tiny, and the machine is shared with other tests.
  setenv("OMP_NUM_THREADS", "1", 1);
}

json TorchTest::model(const std::string& name, const std::string& log, int priority) {
  return {{"model_name", name},      {"backend", "torchscript"}, {"output_file_path", "logs"},
          {"output_file_name", log}, {"priority", priority},     {"control", {{"control", true}}}};
}

void TorchTest::write_models(const std::vector<json>& models) const {
  write_experiment({{"exp_dur", 0.5}, {"models", models}});
}

base::Captured TorchTest::sluice_run(std::vector<std::string> more) {
  more.insert(more.begin(), {"exp.json", "--gpu", "sim"});
  return run("sluice-run", std::move(more));
}

std::vector<std::string> TorchTest::digests(const json& model) {
  write_models(json::array({model}));
  worker_ = run("sluice-worker-torch",
                {"exp.json", "--model", "0", "--cpu", "--jobs", "2", "--digest", "digests"});
  std::istringstream lines(read("digests"));
  std::vector<std::string> found;
  for (std::string job, hash; lines >> job >> hash;) found.push_back(hash);
  return found;
}

std::string TorchTest::image(const std::string& name) {
  return std::string(SLUICE_TEST_DATA) + "/images/" + name;
}

}  // namespace sluice::test
