#include "intercept/trace/cupti/cupti_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace sluice::collector {
namespace {

struct Version {
  const char* library;
  int driver;  ///< Works with drivers of this CUDA version or later.
};
constexpr std::array kVersions{Version{"libcupti.so.13", 13000}, Version{"libcupti.so.12", 12000}};

/// The driver's CUDA version; 0 if it does not say.
int driver_version() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return 0;
  const auto ask =
      reinterpret_cast<decltype(&cuDriverGetVersion)>(dlsym(driver, "cuDriverGetVersion"));
  int version = 0;
  if (ask != nullptr) ask(&version);
  dlclose(driver);
  return version;
}

/// Folders where CUPTI is next to a library that the process has loaded: in the PyPI wheels of
/// PyTorch for CUDA 13 and for CUDA 12, and in a toolkit.
std::vector<std::string> folders_of_loaded() {
  std::vector<std::string> folders;
  const auto look = [](dl_phdr_info* info, std::size_t, void* out) {
    const std::string_view path(info->dlpi_name);
    const std::size_t slash = path.rfind('/');
    if (slash == std::string_view::npos) return 0;
    const std::string_view file = path.substr(slash + 1);
    if (!file.starts_with("libcudart.so") && !file.starts_with("libtorch_cuda.so")) return 0;
    const std::string folder(path.substr(0, slash + 1));
    auto& found = *static_cast<std::vector<std::string>*>(out);
    for (const char* way : {"", "../../nvidia/cu13/lib/", "../../nvidia/cuda_cupti/lib/",
                            "../../cuda_cupti/lib/", "../extras/CUPTI/lib64/"}) {
      found.push_back(folder + way);
    }
    return 0;
  };
  dl_iterate_phdr(look, &folders);
  return folders;
}

/// Folders of a toolkit, and of the CUPTI that was used for the build.
std::vector<std::string> folders_of_toolkits() {
  std::vector<std::string> roots;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(name); root != nullptr && *root != '\0') {
      roots.emplace_back(root);
    }
  }
  roots.emplace_back("/usr/local/cuda");
  roots.emplace_back(SLUICE_CUPTI_ROOT);
  std::vector<std::string> folders;
  for (const std::string& root : roots) {
    for (const char* way : {"/extras/CUPTI/lib64/", "/lib64/", "/lib/"}) {
      folders.push_back(root + way);
    }
  }
  return folders;
}

void* open_cupti() {
  const int driver = driver_version();
  const auto open_from = [driver](const std::string& folder, int flags) -> void* {
    for (const Version& version : kVersions) {
      if (driver != 0 && driver < version.driver) continue;
      void* library = dlopen((folder + version.library).c_str(), RTLD_NOW | RTLD_LOCAL | flags);
      if (library != nullptr) return library;
    }
    return nullptr;
  };
  if (void* library = open_from("", RTLD_NOLOAD)) return library;
  if (void* library = open_from("", 0)) return library;
  for (const auto& folders : {folders_of_loaded(), folders_of_toolkits()}) {
    for (const std::string& folder : folders) {
      if (void* library = open_from(folder, 0)) return library;
    }
  }
  return nullptr;
}

}  // namespace

std::string load_cupti(Cupti& cupti) {
  void* library = open_cupti();
  dlerror();  // a missing library must not show as an error of the program's
  if (library == nullptr) {
    return "no libcupti.so.13 or .12 (it is in the CUDA toolkit, and in the wheel "
           "nvidia-cuda-cupti;"
           " name its folder in LD_LIBRARY_PATH)";
  }
  std::string missing;
  const auto find = [&](auto& pointer, const char* name) {
    pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(dlsym(library, name));
    if (pointer == nullptr && missing.empty()) missing = name;
  };
#define SLUICE_CUPTI(name) find(cupti.name, #name);
  SLUICE_CUPTI_FUNCTIONS(SLUICE_CUPTI)
#undef SLUICE_CUPTI
  if (missing.empty()) return {};
  return "the CUPTI of this process has no " + missing;
}

}  // namespace sluice::collector
