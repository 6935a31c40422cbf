#include "engine/torch/torchvision.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <regex>

#include "base/error.hpp"
#include "engine/torch/cuda_device.hpp"

namespace sluice::engine {
namespace {

namespace fs = std::filesystem;

/// The torchvision next to the torch that this process has loaded, else the one found at build
/// time.
fs::path torchvision_folder() {
  const fs::path next_to_torch =
      fs::path(loaded_torch_library()).parent_path() / "../../torchvision";
  if (fs::exists(next_to_torch)) return fs::canonical(next_to_torch);
  return fs::path(SLUICE_SITE_PACKAGES) / "torchvision";
}

void* open_globally(const std::string& library) {
  return dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
}

/// Loads libpython with global symbols. torchvision's libraries use symbols of Python but do not
/// name libpython as a dependency.
void load_python(const fs::path& torchvision) {
  const std::string recorded = SLUICE_PYTHON_LIBRARY;
  if (!recorded.empty() && open_globally(recorded) != nullptr) return;
  std::smatch version;
  const std::string path = torchvision.string();
  if (std::regex_search(path, version, std::regex("/(python3\\.\\d+)/"))) {
    if (open_globally("lib" + version[1].str() + ".so.1.0") != nullptr) return;
  }
  throw base::RunError(fmt::format(
      "torchvision in {} needs a shared libpython of its version, and none is found: {} (apt-get "
      "install libpython3-dev, or a Python built with --enable-shared)",
      path, dlerror()));
}

void load(const char* name) {
  const fs::path folder = torchvision_folder();
  const fs::path library = folder / name;
  if (!fs::exists(library)) {
    throw base::RunError(
        fmt::format("no torchvision next to torch: {} is missing (pip install "
                    "torchvision==0.26.0 there)",
                    library.string()));
  }
  load_python(folder);
  // Not in the loader's folders, so the library below would not find it.
  const fs::path bindings = fs::path(loaded_torch_library()).parent_path() / "libtorch_python.so";
  if (open_globally(bindings) != nullptr && open_globally(library) != nullptr) return;
  throw base::RunError(fmt::format("{} cannot be loaded: {}", library.string(), dlerror()));
}

}  // namespace

void load_detection_operators() { load("_C.so"); }

void load_image_operators() { load("image.so"); }

}  // namespace sluice::engine
