#include "intercept/driver/driver.hpp"

#include <dlfcn.h>

#include <mutex>

#include "intercept/driver/dlsym.hpp"
#include "intercept/driver/threads.hpp"

namespace sluice::intercept {

bool resolve_driver(bool load) noexcept {
  if (g_process.driver_ready.load(std::memory_order_acquire)) return true;
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | (load ? 0 : RTLD_NOLOAD));
  if (library == nullptr) return false;
  // No lock of ours is held during the lookups: dlsym takes the loader's lock, and a thread that
  // holds it (in a library's constructor) may be waiting for us. Racing threads find the same
  // addresses.
  Driver found;
  const auto find = [library](auto& pointer, const char* name) {
    void* const address = real_dlsym(library, name);
    if (address == nullptr) return;
    pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(address);
  };
#define SLUICE_HOOK(name, kind) find(found.name, #name);
#define SLUICE_CALL(name) find(found.name, #name);
#define SLUICE_OPTIONAL_CALL(name) SLUICE_CALL(name)
#include "intercept/driver/calls.def"
#include "intercept/driver/hooks.def"
#undef SLUICE_CALL
#undef SLUICE_HOOK
  find(found.simgpu_set_slice, "sluice_simgpu_set_slice");
  dlerror();  // a missing entry must not show as an error of the program's
  const std::lock_guard lock(g_process.driver_writing);
  if (g_process.driver_ready.load(std::memory_order_relaxed)) return true;
  g_process.driver = found;
  g_process.standard_error = base::FileId(STDERR_FILENO);
  g_process.driver_ready.store(true, std::memory_order_release);
  return true;
}

const char* missing_call() noexcept {
#define SLUICE_CALL(name) \
  if (driver().name == nullptr) return #name;
#include "intercept/driver/calls.def"
#undef SLUICE_CALL
  return nullptr;
}

const char* kernel_name(CUfunction function) noexcept {
  const char* name = nullptr;
  const Driver& calls = driver();
  const bool found =
      (calls.cuFuncGetName != nullptr && calls.cuFuncGetName(&name, function) == CUDA_SUCCESS) ||
      // Every launch call also accepts a CUkernel in place of the function.
      (calls.cuKernelGetName != nullptr &&
       calls.cuKernelGetName(&name, reinterpret_cast<CUkernel>(function)) == CUDA_SUCCESS);
  return found && name != nullptr ? name : "?";
}

CUcontext current_context() noexcept {
  CUcontext context = nullptr;
  if (driver().cuCtxGetCurrent != nullptr) driver().cuCtxGetCurrent(&context);
  return context;
}

CUcontext context_of(CUstream stream) noexcept {
  CUcontext context = nullptr;
  const bool known = !is_default_stream(stream) && driver().cuStreamGetCtx != nullptr &&
                     driver().cuStreamGetCtx(stream, &context) == CUDA_SUCCESS;
  return known ? context : current_context();
}

CUdevice current_device() noexcept {
  CUdevice device = -1;
  if (driver().cuCtxGetDevice != nullptr) driver().cuCtxGetDevice(&device);
  return device;
}

CUdevice device_of(CUcontext context) noexcept {
  if (context == current_context()) return current_device();
  if (driver().cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return -1;
  const CUdevice device = current_device();
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent_v2(&popped);
  return device;
}

std::optional<std::uint64_t> reserved_by(CUmemoryPool pool) noexcept {
  cuuint64_t bytes = 0;
  const auto ask = driver().cuMemPoolGetAttribute;
  const bool told =
      ask != nullptr && ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) == CUDA_SUCCESS;
  return told ? std::optional<std::uint64_t>(bytes) : std::nullopt;
}

}  // namespace sluice::intercept
