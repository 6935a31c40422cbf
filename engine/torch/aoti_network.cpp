#include <link.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <filesystem>
#include <set>
#include <string>

#include "engine/torch/network.hpp"

namespace sluice::engine {
namespace {

namespace fs = std::filesystem;

std::set<std::string> loaded_libraries() {
  std::set<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* into) {
        static_cast<std::set<std::string>*>(into)->insert(info->dlpi_name);
        return 0;
      },
      &names);
  return names;
}

class CompiledNetwork : public Network {
 public:
  CompiledNetwork(const StoredModel& model, const std::vector<at::Tensor>& inputs)
      : before_(loaded_libraries()),
        loader_(model.file, "model", /*run_single_threaded=*/true, /*num_runners=*/1,
                inputs.at(0).device().index()),
        inputs_(inputs) {}

  c10::IValue run() override {
    auto outputs = loader_.run(inputs_);
    if (unpacked_) remove_unpacked();
    return c10::IValue(std::move(outputs));
  }

 private:
  /// Removes the folder /tmp/XXXXXX into which the loader unpacks the package. The loader removes
  /// it in its destructor, which never runs because workers normally end by SIGKILL. After the
  /// first run all files in the folder are loaded.
  void remove_unpacked() {
    unpacked_ = false;
    for (const fs::path library : loaded_libraries()) {
      const auto parts = std::distance(library.begin(), library.end());
      if (before_.contains(library) || !library.native().starts_with("/tmp/") || parts < 4)
        continue;
      std::error_code ignored;
      fs::remove_all(fs::path("/tmp") / *std::next(library.begin(), 2), ignored);
    }
  }

  std::set<std::string> before_;
  bool unpacked_ = true;
  torch::inductor::AOTIModelPackageLoader loader_;
  std::vector<at::Tensor> inputs_;
};

}  // namespace

std::unique_ptr<Network> load_compiled(const StoredModel& model,
                                       const std::vector<at::Tensor>& inputs) {
  return std::make_unique<CompiledNetwork>(model, inputs);
}

}  // namespace sluice::engine
