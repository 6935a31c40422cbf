#include "profiler/compile/nvrtc.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/error.hpp"

namespace sluice::profiler {
namespace {

/// The entries of nvrtc.h that are used here: not every machine that builds Sluice has the header.
struct Nvrtc {
  using Program = void*;
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const*,
                const char* const*) = nullptr;
  int (*compile)(Program, int options, const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*log_size)(Program, std::size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*cubin_size)(Program, std::size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
};

/// Never closed.
void* open_nvrtc() {
  if (const char* file = std::getenv("SLUICE_NVRTC")) return dlopen(file, RTLD_NOW);
  constexpr std::array kNames{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  constexpr std::array kFolders{"", "/usr/local/cuda/lib64/"};
  for (const char* folder : kFolders) {
    for (const char* name : kNames) {
      if (void* library = dlopen((std::string(folder) + name).c_str(), RTLD_NOW)) return library;
    }
  }
  return nullptr;
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

std::unique_ptr<Nvrtc> load() {
  void* const library = open_nvrtc();
  auto nvrtc = std::make_unique<Nvrtc>();
  const bool whole = library != nullptr && find(library, "nvrtcCreateProgram", nvrtc->create) &&
                     find(library, "nvrtcCompileProgram", nvrtc->compile) &&
                     find(library, "nvrtcDestroyProgram", nvrtc->destroy) &&
                     find(library, "nvrtcGetProgramLogSize", nvrtc->log_size) &&
                     find(library, "nvrtcGetProgramLog", nvrtc->log) &&
                     find(library, "nvrtcGetCUBINSize", nvrtc->cubin_size) &&
                     find(library, "nvrtcGetCUBIN", nvrtc->cubin);
  return whole ? std::move(nvrtc) : nullptr;
}

const Nvrtc* nvrtc() {
  static const std::unique_ptr<Nvrtc> loaded = load();
  return loaded.get();
}

/// Of a log of the compiler: its first error, else its first line.
std::string first_error(const std::string& log) {
  const std::size_t error = log.find("error");
  const std::size_t begin = error == std::string::npos ? 0 : log.rfind('\n', error) + 1;
  return log.substr(begin, log.find('\n', begin) - begin);
}

}  // namespace

bool has_nvrtc() { return nvrtc() != nullptr; }

std::string compile_cuda(const std::string& source, const std::string& arch) {
  const Nvrtc* const api = nvrtc();
  if (api == nullptr) {
    throw base::RunError(
        "no NVRTC found: install CUDA's libnvrtc, or name its file in SLUICE_NVRTC");
  }
  Nvrtc::Program program = nullptr;
  if (api->create(&program, source.c_str(), "program.cu", 0, nullptr, nullptr) != 0) {
    throw base::RunError("nvrtcCreateProgram failed");
  }
  const auto destroy = [api](void* created) { api->destroy(&created); };
  const std::unique_ptr<void, decltype(destroy)> owner(program, destroy);
  const std::string arch_option = "--gpu-architecture=" + arch;
  const std::array options{arch_option.c_str(), "--std=c++17"};
  if (api->compile(program, options.size(), options.data()) != 0) {
    std::size_t size = 0;
    api->log_size(program, &size);
    std::string log(size, '\0');
    api->log(program, log.data());
    throw base::RunError(first_error(log));
  }
  std::size_t size = 0;
  api->cubin_size(program, &size);
  std::string cubin(size, '\0');
  if (size == 0 || api->cubin(program, cubin.data()) != 0) {
    throw base::RunError("NVRTC gave no binary for " + arch);
  }
  return cubin;
}

}  // namespace sluice::profiler
