#pragma once

#include <memory>

#include "simgpu/driver/context.hpp"

namespace sluice::simgpu {

CUresult make_context(CUdevice device, unsigned flags, bool primary,
                      std::shared_ptr<Context>& context);

// Restores a destroyed primary context, empty.
CUresult start_context(const std::shared_ptr<Context>& context);

// Ends the context here and on the GPU, with all objects in it.
void destroy_context(const std::shared_ptr<Context>& context);

}  // namespace sluice::simgpu
