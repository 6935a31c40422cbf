#include "engine/memory/driver.hpp"

#include <dlfcn.h>

#include <string>

#include "engine/driver_error.hpp"

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
  check_result(result, call, cuGetErrorName);
}

}  // namespace sluice::engine
