#include "intercept/launch.hpp"

namespace sluice::intercept {

bool is_programmatic(const CUlaunchConfig* config) noexcept {
  if (config == nullptr) return false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute.value.programmaticStreamSerializationAllowed != 0) {
      return true;
    }
  }
  return false;
}

}  // namespace sluice::intercept
