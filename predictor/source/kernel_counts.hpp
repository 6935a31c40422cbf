#pragma once
#include <array>
#include <bit>
#include <cstddef>

/// What a kernel in TVM's CUDA C does, counted in its text.
namespace sluice::predictor {

/// Means over the warps of a kernel, unless said otherwise. A *request* is an instruction of a warp
/// that reads or writes memory; a *sector* 32 bytes of global memory; a *wavefront* a pass over the
/// 32 banks of shared memory. "Written" counts every statement as often as it runs; the others
/// count a load once for all statements that read the same address, and outside the loops that it
/// does not vary with, as the compiler does.
struct KernelCounts {
  double fma = 0;
  double float_ops = 0;  ///< Sums, products, minima and maxima that are no part of an FMA.
  double divisions = 0;
  double functions = 0;  ///< expf and the like.
  double shuffles = 0;
  double integer_ops = 0;        ///< Of addresses and indices.
  double integer_divisions = 0;  ///< Likewise; by what is no power of two.
  double branches = 0;           ///< Iterations of loops, and conditions.
  double syncs = 0;
  double statements = 0;

  double global_loads = 0;  ///< Requests.
  double global_load_sectors = 0;
  double global_load_lines = 0;  ///< Lines of 128 bytes.
  double global_stores = 0;
  double global_store_sectors = 0;
  double shared_loads = 0;
  double shared_load_wavefronts = 0;
  double shared_stores = 0;
  double shared_store_wavefronts = 0;
  double written_global_loads = 0;
  double written_global_load_sectors = 0;
  double written_shared_loads = 0;
  double written_shared_load_wavefronts = 0;
  double local_loads = 0;  ///< Of arrays of a thread, which are registers if all goes well.
  double local_stores = 0;
  /// Accesses to those arrays that are left if they are memory: an element stays in a register in
  /// the loops inside which its index does not vary, and between statements of one loop.
  double local_accesses = 0;

  double text = 0;          ///< Statements in the text of the kernel.
  double hot_text = 0;      ///< Those in the loop that runs most statements.
  double hot_trips = 0;     ///< How often a warp runs that loop.
  double unrolled = 0;      ///< Statements once the loops are unrolled that index local arrays.
  double local_bytes = 0;   ///< Of a thread.
  double shared_bytes = 0;  ///< Of a block.
  double unread = 0;  ///< Accesses whose addresses are unknown, such as those by a loaded index.

  static constexpr std::size_t kNumbers = 33;
  /// All of them, in the order above.
  [[nodiscard]] std::array<double, kNumbers> numbers() const {
    return std::bit_cast<std::array<double, kNumbers>>(*this);
  }
  [[nodiscard]] static KernelCounts of(const std::array<double, kNumbers>& numbers) {
    return std::bit_cast<KernelCounts>(numbers);
  }
};

}  // namespace sluice::predictor
