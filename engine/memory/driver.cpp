#include "engine/memory/driver.hpp"

#include <type_traits>

#include "base/cuda_library.hpp"
#include "engine/driver_error.hpp"

namespace sluice::engine {
namespace {

MemoryDriver load() {
  const base::CudaLibrary library;
  MemoryDriver driver;
#define SLUICE_TEXT(entry) #entry
#define SLUICE_FIND(entry) \
  driver.entry = library.get<std::remove_pointer_t<decltype(driver.entry)>>(SLUICE_TEXT(entry));
  SLUICE_MEMORY_ENTRIES(SLUICE_FIND)
#undef SLUICE_FIND
#undef SLUICE_TEXT
  return driver;
}

}  // namespace

const MemoryDriver& MemoryDriver::loaded() {
  static const MemoryDriver driver = load();
  return driver;
}

void MemoryDriver::check(CUresult result, std::string_view call) const {
  check_result(result, call, cuGetErrorName);
}

}  // namespace sluice::engine
