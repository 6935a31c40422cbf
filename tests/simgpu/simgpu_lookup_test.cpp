#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace {

struct Entry {
  const char* name;
  int version;
  const char* plain;
  const char* per_thread;
};

const Entry kEntries[] = {
#define SLUICE_ENTRY(name, version, symbol) {#name, version, #symbol, nullptr},
#define SLUICE_ENTRY_PT(name, version, symbol, pt) {#name, version, #symbol, #pt},
#include "simgpu/driver/entries.def"
#undef SLUICE_ENTRY
#undef SLUICE_ENTRY_PT
};

void* library() { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); }

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t);

// If only one way of lookup finds an entry, a hook of that entry works in some programs and fails
// in others.
TEST(Lookup, EveryEntryIsExportedAndFoundByBothAbisAtItsOwnVersion) {
  ASSERT_NE(library(), nullptr);
  const auto first_abi = reinterpret_cast<GetProcAddress>(dlsym(library(), "cuGetProcAddress"));
  ASSERT_NE(first_abi, nullptr);
  for (const Entry& entry : kEntries) {
    void* exported = dlsym(library(), entry.plain);
    EXPECT_NE(exported, nullptr) << entry.plain;
    void* found = nullptr;
    EXPECT_EQ(cuGetProcAddress(entry.name, &found, entry.version, 0, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(found, exported) << entry.plain;
    found = nullptr;
    EXPECT_EQ(first_abi(entry.name, &found, entry.version, 0), CUDA_SUCCESS);
    EXPECT_EQ(found, exported) << entry.plain;
    if (entry.per_thread != nullptr) exported = dlsym(library(), entry.per_thread);
    EXPECT_NE(exported, nullptr) << entry.per_thread;
    EXPECT_EQ(cuGetProcAddress(entry.name, &found, entry.version,
                               CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(found, exported) << entry.plain;
  }
}

TEST(Lookup, NamesWithAVersionAreNotFound) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult result{};
  EXPECT_EQ(cuGetProcAddress("cuMemAlloc_v2", &found, 13000, 0, &result), CUDA_SUCCESS);
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(result, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

TEST(Lookup, PrivateTablesAreNotFound) {
  const void* table = nullptr;
  const CUuuid id{};
  EXPECT_EQ(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
}

}  // namespace
