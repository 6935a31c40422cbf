#include "engine/operators/kernel_collection.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <mutex>
#include <type_traits>

#include "base/error.hpp"
#include "base/kernel_collector.h"

namespace sluice::engine {
namespace {

/// The collector's callback has no argument of ours.
struct Ended {
  struct Kernel {
    std::uint64_t begin_ns = 0;
    std::uint64_t mark = 0;
    KernelTimes times{};
  };
  std::mutex mutex;
  std::vector<Kernel> kernels;
};
Ended& ended() {
  // Never destroyed: CUPTI's thread may call until the process ends.
  static auto* const kEnded = new Ended;
  return *kEnded;
}

void keep(const SluiceKernel* kernel) {
  if (kernel->correlation == 0) return;
  KernelTimes times{.name = kernel->name == nullptr ? "?" : kernel->name,
                    .ms = static_cast<double>(kernel->end_ns - kernel->begin_ns) / 1e6,
                    .registers = kernel->registers,
                    .shared_bytes = kernel->shared_bytes};
  std::copy_n(kernel->grid, 3, times.grid.begin());
  std::copy_n(kernel->block, 3, times.block.begin());
  const std::lock_guard lock(ended().mutex);
  ended().kernels.push_back({kernel->begin_ns, kernel->correlation, std::move(times)});
}

}  // namespace

KernelCollection::KernelCollection(const std::string& library) {
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    throw base::RunError("no times of kernels: " + library + " is missing: built without CUPTI");
  }
  const auto find = [loaded](auto& pointer, const char* name) {
    pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(dlsym(loaded, name));
  };
  decltype(&sluice_collector_start) start = nullptr;
  find(start, "sluice_collector_start");
  find(begin_, "sluice_collector_begin");
  find(end_, "sluice_collector_end");
  find(flush_, "sluice_collector_flush");
  if (const char* const why = start(&keep)) {
    throw base::RunError(std::string("no times of kernels: ") + why);
  }
}

std::vector<std::pair<std::uint64_t, KernelTimes>> KernelCollection::take() const {
  flush_();
  const std::lock_guard lock(ended().mutex);
  auto kernels = std::exchange(ended().kernels, {});
  std::ranges::sort(kernels, {}, &Ended::Kernel::begin_ns);
  std::vector<std::pair<std::uint64_t, KernelTimes>> found;
  for (auto& kernel : kernels) found.emplace_back(kernel.mark, std::move(kernel.times));
  return found;
}

}  // namespace sluice::engine
