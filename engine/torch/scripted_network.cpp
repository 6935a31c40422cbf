#include <torch/script.h>

#include "engine/torch/network.hpp"
#include "engine/torch/torchvision.hpp"

namespace sluice::engine {
namespace {

class ScriptedNetwork : public Network {
 public:
  ScriptedNetwork(const StoredModel& model, const at::Tensor& batch)
      : module_(torch::jit::load(model.file, batch.device())) {
    if (model.task == "detection") {
      inputs_.emplace_back(c10::List<at::Tensor>(batch.unbind(0)));
    } else {
      inputs_.emplace_back(batch);
    }
  }

  c10::IValue run() override { return module_.forward(inputs_); }

 private:
  torch::jit::Module module_;
  std::vector<c10::IValue> inputs_;
};

}  // namespace

std::unique_ptr<Network> load_scripted(const StoredModel& model, const at::Tensor& batch) {
  if (model.task == "detection") load_detection_operators();
  return std::make_unique<ScriptedNetwork>(model, batch);
}

}  // namespace sluice::engine
