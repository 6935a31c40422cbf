// Asks the driver that the loader finds, simulated or real, for every hooked entry in every way a
// program can, and says in which object each answer lives. Run it under the preload. It prevents
// that a driver's cuGetProcAddress answers with an address that dlsym does not know: the hook
// would be passed by, and only a real driver can show that. Exit code 1 if any is passed by.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "intercept/driver/entries.hpp"

namespace {

int g_asked = 0;
int g_missed = 0;

bool is_ours(void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr &&
         std::strstr(info.dli_fname, "libsluice_intercept") != nullptr;
}

void judge(const char* way, const std::string& name, void* found) {
  if (found == nullptr) return;  // this driver has no such entry
  ++g_asked;
  if (is_ours(found)) return;
  ++g_missed;
  std::printf("passed by: %s by %s\n", name.c_str(), way);
}

/// The name that cuGetProcAddress knows an entry by: without version and per-thread suffix.
std::string base_name(std::string name) {
  for (const char* suffix : {"_ptsz", "_ptds", "_v2", "_v3", "_v4"}) {
    const std::size_t at = name.rfind(suffix);
    if (at != std::string::npos && at + std::strlen(suffix) == name.size()) name.resize(at);
  }
  return name;
}

}  // namespace

int main() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::printf("no driver: %s\n", dlerror());
    return 2;
  }
  const auto ask_v2 =
      reinterpret_cast<decltype(&::cuGetProcAddress_v2)>(dlsym(library, "cuGetProcAddress_v2"));
  const auto ask_v1 =
      reinterpret_cast<decltype(&::cuGetProcAddress)>(dlsym(library, "cuGetProcAddress"));
  const char* names[] = {
#define SLUICE_HOOK(name, kind) #name,
#include "intercept/driver/hooks.def"
#undef SLUICE_HOOK
  };
  for (const std::string name : names) {
    judge("dlsym of a handle", name, dlsym(library, name.c_str()));
    if (dlsym(library, name.c_str()) != nullptr) {
      judge("dlsym(RTLD_DEFAULT)", name, dlsym(RTLD_DEFAULT, name.c_str()));
    }
    const std::string base = base_name(name);
    for (const int version : {11030, 12000, 12040, 13000}) {
      for (const cuuint64_t flags : {CU_GET_PROC_ADDRESS_DEFAULT, CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                                     CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM}) {
        void* found = nullptr;
        CUdriverProcAddressQueryResult status{};
        if (ask_v2(base.c_str(), &found, version, flags, &status) == CUDA_SUCCESS) {
          judge("cuGetProcAddress_v2", base + " " + std::to_string(version), found);
        }
        found = nullptr;
        if (ask_v1(base.c_str(), &found, version, flags) == CUDA_SUCCESS) {
          judge("cuGetProcAddress", base + " " + std::to_string(version), found);
        }
      }
    }
  }
  std::printf("%d answers, %d passed by\n", g_asked, g_missed);
  return g_missed == 0 && g_asked > 0 ? 0 : 1;
}
