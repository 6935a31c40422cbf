// Every way in which a program finds a driver entry must lead to the hook, and a call through it
// must reach the driver exactly once and unchanged. A way past the hooks would let a best-effort
// program launch into a critical job; a second pass through them would count and hold it twice.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "tests/intercept/snippets.hpp"
#include "tests/support/standins/constructor_library.hpp"

namespace sluice::intercept::test {
namespace {

using LookupV1 = decltype(&::cuGetProcAddress);
using LookupV2 = decltype(&::cuGetProcAddress_v2);

void* driver_handle() { return dlopen("libcuda.so.1", RTLD_NOW); }

void expect_hook(const Snippet& snippet, void* found) {
  ASSERT_NE(found, nullptr) << snippet.name;
  EXPECT_EQ(object_of(found), kInterposer) << snippet.name;
  EXPECT_EQ(check_call(snippet, found), "");
}

TEST(Routing, LinkedSymbol) {
  for (const Snippet& snippet : snippets()) {
    EXPECT_EQ(check_call(snippet, nullptr), "");
  }
}

TEST(Routing, DlsymOnAHandle) {
  for (const Snippet& snippet : snippets()) {
    expect_hook(snippet, dlsym(driver_handle(), snippet.name.data()));
  }
}

TEST(Routing, DlsymOnTheProgram) {
  for (const Snippet& snippet : snippets()) {
    expect_hook(snippet, dlsym(dlopen(nullptr, RTLD_NOW), snippet.name.data()));
  }
}

TEST(Routing, DlsymDefault) {
  for (const Snippet& snippet : snippets()) {
    expect_hook(snippet, dlsym(RTLD_DEFAULT, snippet.name.data()));
  }
}

TEST(Routing, DlsymNextOfTheProgram) {
  for (const Snippet& snippet : snippets()) {
    expect_hook(snippet, dlsym(RTLD_NEXT, snippet.name.data()));
  }
}

TEST(Routing, InAForkedChild) {
  for (const Snippet& snippet : snippets()) {
    const pid_t child = fork();
    if (child == 0) {
      const bool good = check_call(snippet, nullptr).empty() &&
                        check_call(snippet, dlsym(driver_handle(), snippet.name.data())).empty();
      _exit(good ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << snippet.name;
  }
}

/// The name that a program asks cuGetProcAddress for, without version and thread suffixes.
std::string base_name(std::string_view exported) {
  std::string name(exported);
  for (const char* suffix : {"_ptsz", "_ptds", "_v2", "_v3", "_v4"}) {
    if (name.ends_with(suffix)) name.resize(name.size() - std::string_view(suffix).size());
  }
  return name;
}

/// The two look-up entries, each found in every way in which the CUDA runtime does.
std::vector<LookupV1> lookups_v1() {
  const auto by_dlsym = reinterpret_cast<LookupV1>(dlsym(driver_handle(), "cuGetProcAddress"));
  void* by_itself = nullptr;
  by_dlsym("cuGetProcAddress", &by_itself, 11030, 0);
  return {&::cuGetProcAddress, by_dlsym, reinterpret_cast<LookupV1>(by_itself)};
}

std::vector<LookupV2> lookups_v2() {
  const auto by_dlsym = reinterpret_cast<LookupV2>(dlsym(driver_handle(), "cuGetProcAddress_v2"));
  void* by_itself = nullptr;
  void* by_exact_name = nullptr;
  void* by_first = nullptr;
  by_dlsym("cuGetProcAddress", &by_itself, 12000, 0, nullptr);
  by_dlsym("cuGetProcAddress_v2", &by_exact_name, 13000, 0, nullptr);
  ::cuGetProcAddress("cuGetProcAddress", &by_first, 13000, 0);
  return {&::cuGetProcAddress_v2, by_dlsym, reinterpret_cast<LookupV2>(by_itself),
          reinterpret_cast<LookupV2>(by_exact_name), reinterpret_cast<LookupV2>(by_first)};
}

constexpr std::array<int, 5> kVersions{11030, 11040, 12000, 12080, 13000};
constexpr std::array<cuuint64_t, 3> kFlags{CU_GET_PROC_ADDRESS_DEFAULT,
                                           CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                                           CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};

/// `found` must be the hook of the entry that the driver itself returns for this name.
void expect_same_entry(const std::string& name, int version, cuuint64_t flags, CUresult result,
                       void* found) {
  void* real = nullptr;
  ASSERT_EQ(fake::find_entry(name.c_str(), &real, version, flags), result);
  if (result != CUDA_SUCCESS) return;
  Dl_info asked{};
  Dl_info given{};
  ASSERT_NE(dladdr(real, &asked), 0);
  ASSERT_NE(dladdr(found, &given), 0);
  EXPECT_STREQ(asked.dli_sname, given.dli_sname) << name << " " << version << " " << flags;
  EXPECT_EQ(object_of(found), kInterposer) << given.dli_sname;
}

TEST(Routing, GetProcAddressOf11) {
  for (const Snippet& snippet : snippets()) {
    const std::string name = base_name(snippet.name);
    for (const LookupV1 lookup : lookups_v1()) {
      ASSERT_EQ(object_of(reinterpret_cast<void*>(lookup)), kInterposer);
      for (const int version : kVersions) {
        for (const cuuint64_t flags : kFlags) {
          void* found = nullptr;
          const CUresult result = lookup(name.c_str(), &found, version, flags);
          expect_same_entry(name, version, flags, result, found);
        }
      }
    }
  }
}

TEST(Routing, GetProcAddressOf12) {
  for (const Snippet& snippet : snippets()) {
    const std::string name = base_name(snippet.name);
    for (const LookupV2 lookup : lookups_v2()) {
      ASSERT_EQ(object_of(reinterpret_cast<void*>(lookup)), kInterposer);
      for (const int version : kVersions) {
        for (const cuuint64_t flags : kFlags) {
          void* found = nullptr;
          CUdriverProcAddressQueryResult status{};
          const CUresult result = lookup(name.c_str(), &found, version, flags, &status);
          expect_same_entry(name, version, flags, result, found);
        }
      }
    }
  }
}

TEST(Routing, GetProcAddressOfTheExactName) {
  for (const Snippet& snippet : snippets()) {
    void* found = nullptr;
    ASSERT_EQ(::cuGetProcAddress_v2(snippet.name.data(), &found, 13000, 0, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(object_of(found), kInterposer);
  }
}

TEST(Routing, FromALibraryConstructor) {
  EXPECT_EQ(calls_of_constructor(), static_cast<int>(2 * snippets().size()));
  EXPECT_EQ(complaints_of_constructor(), "");
}

TEST(Routing, EveryVersionOfEveryHookCanBeReached) {
  std::set<std::string> reached;
  for (const Snippet& snippet : snippets()) {
    for (const int version : kVersions) {
      for (const cuuint64_t flags : kFlags) {
        void* found = nullptr;
        ::cuGetProcAddress(base_name(snippet.name).c_str(), &found, version, flags);
        Dl_info given{};
        if (found != nullptr && dladdr(found, &given) != 0) reached.insert(given.dli_sname);
      }
    }
  }
  EXPECT_TRUE(reached.contains("cuGetProcAddress_v2"));
  EXPECT_TRUE(reached.contains("cuLaunchKernel_ptsz"));
  EXPECT_TRUE(reached.contains("cuMemcpyHtoD_v2_ptds"));
  EXPECT_TRUE(reached.contains("cuCtxCreate_v4"));
  EXPECT_TRUE(reached.contains("cuCtxCreate_v3"));
}

// The CUDA 13 runtime asks once for an empty name.
TEST(Routing, AnEmptyNameIsTheDriversBusiness) {
  int sentinel = 0;
  void* found = &sentinel;
  EXPECT_EQ(::cuGetProcAddress("", &found, 12000, 0), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(found, nullptr);
  found = &sentinel;
  EXPECT_EQ(::cuGetProcAddress_v2("", &found, 13000, 0, nullptr), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(::cuGetProcAddress(nullptr, &found, 12000, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuGetProcAddress("cuInit", nullptr, 12000, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(Routing, WhatIsNotHookedStaysTheDrivers) {
  void* found = nullptr;
  ASSERT_EQ(::cuGetProcAddress("cuInit", &found, 12000, 0), CUDA_SUCCESS);
  EXPECT_EQ(object_of(found), "libcuda.so.1");
  EXPECT_EQ(object_of(dlsym(driver_handle(), "cuInit")), "libcuda.so.1");
  EXPECT_EQ(dlsym(driver_handle(), "cuNoSuchEntry"), nullptr);
  EXPECT_EQ(dlsym(driver_handle(), ""), nullptr);
}

// cudnn, cublas and curand begin with "cu" too: taking theirs would recurse into ourselves.
TEST(Routing, NamesThatOnlyBeginAlikeStayTheirLibrarys) {
  void* library = dlopen(SLUICE_LOOKALIKE_LIBRARY, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const char* name : {"cudnnCreate", "cublasCreate_v2", "cuLaunchKernel", "cuLaunchKernel2"}) {
    EXPECT_EQ(object_of(dlsym(library, name)), "liblookalike.so") << name;
  }
}

// A man page's way to ask: clear, look up, and take any message for a failure.
TEST(Routing, ASuccessfulLookupLeavesNoErrorBehind) {
  dlerror();
  ASSERT_NE(dlsym(driver_handle(), "cuInit"), nullptr);
  const char* message = dlerror();
  EXPECT_EQ(message, nullptr) << message;
}

}  // namespace
}  // namespace sluice::intercept::test
