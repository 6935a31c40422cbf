#include "engine/memory/driver.hpp"

#include <dlfcn.h>

#include <string>

#include "engine/context_lost.hpp"
#include "engine/out_of_memory.hpp"
#include "engine/sticky_error.hpp"

namespace sluice::engine {
namespace {

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return;
  throw base::RunError(std::string("the driver has no ") + name + ": update the driver");
}

Driver load() {
  // Never closed: the driver cannot be unloaded.
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw base::RunError(std::string("no driver: ") + dlerror());
  Driver driver;
#define SLUICE_TEXT(entry) #entry
#define SLUICE_FIND(entry) find(library, SLUICE_TEXT(entry), driver.entry);
  SLUICE_MEMORY_ENTRIES(SLUICE_FIND)
#undef SLUICE_FIND
#undef SLUICE_TEXT
  return driver;
}

}  // namespace

const Driver& Driver::loaded() {
  static const Driver driver = load();
  return driver;
}

void Driver::check(CUresult result, std::string_view call) const {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "an unknown error";
  const std::string what = std::string(call.substr(0, call.find('('))) + " failed: " + name;
  if (is_sticky(result)) throw ContextLost(what);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw OutOfMemory(what);
  throw base::RunError(what);
}

}  // namespace sluice::engine
