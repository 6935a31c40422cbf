#include "intercept/pacing/launch.hpp"

namespace sluice::intercept {

namespace {

/// Whether the launch asks to start before the one in front of it has ended.
bool is_programmatic(const CUlaunchConfig& config) noexcept {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute.value.programmaticStreamSerializationAllowed != 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

Work work_of(const CUlaunchConfig* config, CUfunction function) noexcept {
  Work work;
  work.function = function;
  if (config == nullptr) return work;
  work.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
  work.block = {config->blockDimX, config->blockDimY, config->blockDimZ};
  work.shared_bytes = config->sharedMemBytes;
  work.programmatic = is_programmatic(*config);
  return work;
}

}  // namespace sluice::intercept
