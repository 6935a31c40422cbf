#include "predictor/source/kernel_counts.hpp"

namespace sluice::predictor {
namespace {

using C = KernelCounts;
constexpr std::array<double C::*, C::kNumbers> kMembers{&C::fma,
                                                        &C::float_ops,
                                                        &C::divisions,
                                                        &C::functions,
                                                        &C::shuffles,
                                                        &C::integer_ops,
                                                        &C::integer_divisions,
                                                        &C::branches,
                                                        &C::syncs,
                                                        &C::statements,
                                                        &C::global_loads,
                                                        &C::global_load_sectors,
                                                        &C::global_load_lines,
                                                        &C::global_stores,
                                                        &C::global_store_sectors,
                                                        &C::shared_loads,
                                                        &C::shared_load_wavefronts,
                                                        &C::shared_stores,
                                                        &C::shared_store_wavefronts,
                                                        &C::written_global_loads,
                                                        &C::written_global_load_sectors,
                                                        &C::written_shared_loads,
                                                        &C::written_shared_load_wavefronts,
                                                        &C::local_loads,
                                                        &C::local_stores,
                                                        &C::local_accesses,
                                                        &C::text,
                                                        &C::hot_text,
                                                        &C::hot_trips,
                                                        &C::unrolled,
                                                        &C::local_bytes,
                                                        &C::shared_bytes,
                                                        &C::unread};

}  // namespace

std::array<double, KernelCounts::kNumbers> KernelCounts::numbers() const {
  std::array<double, kNumbers> found{};
  for (std::size_t i = 0; i < kNumbers; ++i) found[i] = this->*kMembers[i];
  return found;
}

KernelCounts KernelCounts::of(const std::array<double, kNumbers>& numbers) {
  KernelCounts counts;
  for (std::size_t i = 0; i < kNumbers; ++i) counts.*kMembers[i] = numbers[i];
  return counts;
}

}  // namespace sluice::predictor
