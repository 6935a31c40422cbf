#include <cctype>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "simgpu/driver/capture.hpp"
#include "simgpu/driver/driver.hpp"

using namespace sluice::simgpu;

namespace {

constexpr std::string_view kSpin = "sluice_spin";
constexpr std::string_view kFault = "sluice_fault";

bool is_binary(const char* image) {
  return std::memcmp(image, "\177ELF", 4) == 0 || std::memcmp(image, "\x50\xed\x55\xba", 4) == 0;
}

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }

// The names after `.entry` in PTX.
std::set<std::string> entries_of(std::string_view ptx) {
  constexpr std::string_view kEntry = ".entry";
  std::set<std::string> names;
  for (std::size_t at = ptx.find(kEntry); at != std::string_view::npos;
       at = ptx.find(kEntry, at + 1)) {
    std::size_t from = at + kEntry.size();
    while (from < ptx.size() && std::isspace(static_cast<unsigned char>(ptx[from]))) ++from;
    std::size_t to = from;
    while (to < ptx.size() && in_name(ptx[to])) ++to;
    if (to > from) names.emplace(ptx.substr(from, to - from));
  }
  return names;
}

CUresult load(CUmodule* module, const void* image) {
  return with_context([&](Context& context) {
    if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult status = drain(context); status != CUDA_SUCCESS) return status;
    auto loaded = std::make_shared<Module>();
    loaded->context = current_context();
    const char* text = static_cast<const char*>(image);
    loaded->any_name = is_binary(text);
    if (!loaded->any_name) loaded->entries = entries_of(text);
    if (!loaded->any_name && loaded->entries.empty() &&
        std::string_view(text).find(".version") == std::string_view::npos) {
      return CUDA_ERROR_INVALID_IMAGE;
    }
    *module = driver().modules.add(std::move(loaded));
    return CUDA_SUCCESS;
  });
}

CUfunction make_function(Module& module, CUmodule handle, const char* name) {
  auto function = std::make_shared<Function>();
  function->name = name;
  function->name_index = driver().connection.name_index(name);
  function->length_in_argument = std::string_view(name).substr(0, kSpin.size()) == kSpin;
  function->faults = std::string_view(name).substr(0, kFault.size()) == kFault;
  function->module = handle;
  function->context = module.context;
  return driver().functions.add(std::move(function));
}

}  // namespace

CUresult cuModuleLoadData(CUmodule* module, const void* image) { return load(module, image); }

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*,
                            void**) {
  return load(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return load(module, fatCubin);
}

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  if (fname == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(fname, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  const std::string image(std::istreambuf_iterator<char>(file), {});
  return load(module, image.c_str());
}

CUresult cuModuleUnload(CUmodule hmod) {
  return with_context([&](Context& context) {
    if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
    if (!driver().modules.find(hmod)) return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult status = drain(context); status != CUDA_SUCCESS) return status;
    if (!driver().modules.take(hmod)) return CUDA_ERROR_INVALID_HANDLE;
    driver().functions.take_if([&](const Function& function) { return function.module == hmod; });
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  return with_context([&](Context&) {
    if (hfunc == nullptr || name == nullptr || *name == 0) return CUDA_ERROR_INVALID_VALUE;
    const std::shared_ptr<Module> module = driver().modules.find(hmod);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    if (!module->any_name && module->entries.count(name) == 0) return CUDA_ERROR_NOT_FOUND;
    const std::lock_guard lock(module->mutex);
    CUfunction& function = module->functions[name];
    if (function == nullptr) function = make_function(*module, hmod, name);
    *hfunc = function;
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (!driver().functions.find(hfunc)) return CUDA_ERROR_INVALID_HANDLE;
  if (pi == nullptr || attrib < 0 || attrib >= CU_FUNC_ATTRIBUTE_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pi = 0;
  if (attrib == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) *pi = 1024;
  if (attrib == CU_FUNC_ATTRIBUTE_NUM_REGS) *pi = 16;
  if (attrib == CU_FUNC_ATTRIBUTE_PTX_VERSION || attrib == CU_FUNC_ATTRIBUTE_BINARY_VERSION) {
    *pi = 90;
  }
  return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<Function> function = driver().functions.find(hfunc);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *hmod = function->module;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<Function> function = driver().functions.find(hfunc);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = function->name.c_str();
  return CUDA_SUCCESS;
}
