#include "simgpu/driver/context.hpp"

namespace sluice::simgpu {

std::vector<std::shared_ptr<Context>>& context_stack() {
  thread_local std::vector<std::shared_ptr<Context>> stack;
  return stack;
}

std::shared_ptr<Context> current_context() {
  return context_stack().empty() ? nullptr : context_stack().back();
}

}  // namespace sluice::simgpu
