#include "base/cuda_library.hpp"

#include <dlfcn.h>
#include <link.h>

namespace sluice::base {

CudaLibrary::CudaLibrary(const std::string& file)
    : handle_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)), path_(file) {
  if (handle_ == nullptr) {
    const std::string said = dlerror();
    throw RunError(said.ends_with("No such file or directory")
                       ? "no NVIDIA driver found (" + file + ")"
                       : "no usable NVIDIA driver: " + said);
  }
  link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) path_ = map->l_name;
}

std::string CudaLibrary::name_of(int error) const {
  const char* name = nullptr;
  auto* const name_in = get<int(int, const char**)>("cuGetErrorName");
  return name_in(error, &name) == 0 && name != nullptr ? name : "error " + std::to_string(error);
}

void* CudaLibrary::find(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (found == nullptr) throw RunError(path_ + " has no " + name + ": update the driver");
  return found;
}

}  // namespace sluice::base
