#include <array>
#include <cstring>

#include "simgpu/driver/api.hpp"

namespace {

struct Entry {
  const char* name;
  int version;
  void* plain;
  void* per_thread;  // null if the entry has no such form
};

template <typename F>
void* address(F* function) {
  return reinterpret_cast<void*>(function);
}

const Entry kEntries[] = {
#define SLUICE_ENTRY(name, version, symbol) {#name, version, address(&symbol), nullptr},
#define SLUICE_ENTRY_PT(name, version, symbol, pt) {#name, version, address(&symbol), address(&pt)},
#include "simgpu/driver/entries.def"
#undef SLUICE_ENTRY
#undef SLUICE_ENTRY_PT
};

constexpr cuuint64_t kKnownFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

// For an unknown name the real driver returns success, a null address, and the reason in `result`.
CUresult look_up(const char* symbol, void** pfn, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult& result) {
  if (symbol == nullptr || pfn == nullptr || flags > kKnownFlags) return CUDA_ERROR_INVALID_VALUE;
  *pfn = nullptr;
  const Entry* best = nullptr;
  bool known = false;
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.name, symbol) != 0) continue;
    known = true;
    if (entry.version > version) continue;
    if (best == nullptr || entry.version > best->version) best = &entry;
  }
  if (best == nullptr) {
    result =
        known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
  }
  const bool own_default_stream = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  *pfn = own_default_stream && best->per_thread != nullptr ? best->per_thread : best->plain;
  result = CU_GET_PROC_ADDRESS_SUCCESS;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  CUdriverProcAddressQueryResult result{};
  const CUresult status = look_up(symbol, pfn, cudaVersion, flags, result);
  const bool missing = status == CUDA_SUCCESS && *pfn == nullptr;
  return missing ? CUDA_ERROR_NOT_FOUND : status;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  CUdriverProcAddressQueryResult result{};
  const CUresult status = look_up(symbol, pfn, cudaVersion, flags, result);
  if (status == CUDA_SUCCESS && symbolStatus != nullptr) *symbolStatus = result;
  return status;
}

// The export tables are the driver's private interface for NVIDIA's libraries. None is simulated.
CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ppExportTable = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
