#include "lookup.hpp"

namespace fake {
namespace {

struct Export {
  std::string_view name;
  void* address;
};

void* exported(const std::string& name) {
  if (name == kFutureBegin) return reinterpret_cast<void*>(&cuStreamBeginFutureCapture);
  if (name == kFutureLaunch) return reinterpret_cast<void*>(&cuLaunchFutureKernel);
  static const Export kTable[] = {
#define SLUICE_HOOK(name, kind) {#name, reinterpret_cast<void*>(&::name)},
#define SLUICE_CALL(name) {#name, reinterpret_cast<void*>(&::name)},
#define SLUICE_FAKE_EXTRA(name) {#name, reinterpret_cast<void*>(&::name)},
#include "intercept/driver/calls.def"
#include "intercept/driver/hooks.def"
#include "tests/support/standins/fakecuda/extras.def"
  };
  for (const Export& entry : kTable) {
    if (entry.name == name) return entry.address;
  }
  return nullptr;
}

/// The first CUDA version that has this exported name, as far as the tests need it.
int first_version(std::string_view name) {
  if (name == "cuGetProcAddress_v2" || name.starts_with("cuGraphInstantiateWithParams")) {
    return 12000;
  }
  if (name == "cuCtxCreate_v4") return 12050;
  if (name == "cuCtxCreate_v3") return 11040;
  if (name == "cuCtxSynchronize_v2") return 13000;
  return 0;
}

}  // namespace

/// As the driver does, finds the newest form that `version` may see, the per-thread form on
/// request, and exact exported names too.
CUresult find_entry(const char* symbol, void** found, int version, cuuint64_t flags) {
  if (symbol == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *found = nullptr;
  const std::string base(symbol);
  if (base.empty()) return CUDA_ERROR_NOT_FOUND;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  for (const char* form : {"_v4", "_v3", "_v2", ""}) {
    const std::string name = base + form;
    if (exported(name) == nullptr || first_version(name) > version) continue;
    void* own = exported(name + "_ptsz");
    if (own == nullptr) own = exported(name + "_ptds");
    *found = per_thread && own != nullptr ? own : exported(name);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace fake
