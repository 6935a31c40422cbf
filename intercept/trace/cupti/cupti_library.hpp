#pragma once
#include <cupti.h>

#include <string>

namespace sluice::collector {

/// The functions of libcupti.so that are called: SLUICE_CUPTI(name). A CUPTI that lacks one of them
/// is not used.
#define SLUICE_CUPTI_FUNCTIONS(SLUICE_CUPTI)           \
  SLUICE_CUPTI(cuptiActivityEnable)                    \
  SLUICE_CUPTI(cuptiActivityFlushAll)                  \
  SLUICE_CUPTI(cuptiActivityGetNextRecord)             \
  SLUICE_CUPTI(cuptiActivityRegisterCallbacks)         \
  SLUICE_CUPTI(cuptiActivityRegisterTimestampCallback) \
  SLUICE_CUPTI(cuptiActivitySetAttribute)              \
  SLUICE_CUPTI(cuptiEnableCallback)                    \
  SLUICE_CUPTI(cuptiGetResultString)                   \
  SLUICE_CUPTI(cuptiSubscribe)                         \
  SLUICE_CUPTI(cuptiUnsubscribe)

struct Cupti {
#define SLUICE_CUPTI(name) decltype(&::name) name = nullptr;
  SLUICE_CUPTI_FUNCTIONS(SLUICE_CUPTI)
#undef SLUICE_CUPTI
};

/// Loads CUPTI: the copy that the process has already, because two would not work together;
/// otherwise from the loader's path; otherwise from a folder near the CUDA runtime or PyTorch that
/// the process has loaded; otherwise from a toolkit. Returns an error, or an empty string.
std::string load_cupti(Cupti& cupti);

}  // namespace sluice::collector
