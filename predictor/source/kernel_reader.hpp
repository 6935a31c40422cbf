#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "predictor/source/access.hpp"
#include "predictor/source/kernel_counts.hpp"
#include "predictor/source/references.hpp"
#include "profiler/packs/pack.hpp"

namespace sluice::predictor {

/// Reads the body of one kernel, a statement a line, as TVM writes it.
class KernelReader {
 public:
  /// `kernel`: with a block and a thread at least. `signature`: the parameters. `lines`: without
  /// comments and spaces around. Both must stay.
  KernelReader(const profiler::Kernel& kernel, std::string_view signature,
               const std::vector<std::string_view>& lines);
  [[nodiscard]] KernelCounts read();

 private:
  enum class Memory { kGlobal, kShared, kLocal };
  struct Array {
    Memory memory = Memory::kGlobal;
    std::int64_t bytes = 4;
  };
  struct Loop {
    std::string_view variable;
    double trips = 1;
    double outside = 1;          ///< How often the warp runs the loop as a whole.
    bool syncs = false;          ///< Something in it waits for the block, so loads cannot leave it.
    bool indexes_local = false;  ///< An array of the thread is indexed by its variable.
    double statements = 0;       ///< With the loops inside that are unrolled.
    double run = 0;              ///< Statements that the warp runs in it, without loops inside.
    double own = 0;              ///< Statements without those of loops inside.
    std::uint64_t bit = 0;
  };
  enum class Block { kLoop, kCondition, kPlain };

  void find_synced_loops();
  void begin_loop(std::string_view line, std::size_t number);
  void end_loop();
  void begin_condition(std::string_view line);
  void other_condition();
  void end_block();
  void declare_parameters(std::string_view signature);
  [[nodiscard]] bool declare(std::string_view line);
  void declare_array(std::string_view line, std::string_view type);
  void declare_vector(std::string_view name, std::string_view value);
  void wait(std::string_view line);
  void assign(std::string_view left, std::string_view right);
  void note_statement();
  void add(const Arithmetic& arithmetic);
  void access(const Reference& reference, bool store);
  void access_memory(const Array& array, const Reference& reference, bool store);
  [[nodiscard]] AccessCost cost_of(const Array& array, const Reference& reference,
                                   std::uint64_t& loops);
  void count_address(std::string_view index, double times);
  void index_local(const Reference& reference, bool store);
  /// How often the warp runs what varies with `loops`, and cannot leave the loops that wait.
  [[nodiscard]] double times_outside(std::uint64_t loops) const;
  void push_mask(const Mask& mask);

  const std::vector<std::string_view>& lines_;
  Indices indices_;
  std::unordered_map<std::string_view, Array> arrays_;
  std::unordered_set<std::string_view> integer_vectors_;
  std::unordered_set<std::string> component_names_;
  std::unordered_set<std::size_t> synced_lines_;
  std::vector<Loop> loops_;
  std::vector<Block> blocks_;
  std::vector<std::pair<Mask, int>> masks_;  ///< With a number, for the cache.
  int mask_number_ = 0;
  double times_ = 1;  ///< How often the warp runs the present line.
  int generation_ = 0;
  int region_ = 0;  ///< Between two waits for the block, shared memory does not change.
  std::uint64_t next_bit_ = 1;
  std::map<std::tuple<std::string_view, std::int64_t, int>, std::pair<AccessCost, std::uint64_t>>
      costs_;
  std::map<std::tuple<std::string_view, std::string_view, int>, bool> seen_;
  std::unordered_set<std::string_view> addresses_;
  std::set<std::tuple<std::string_view, std::string_view, std::uint64_t, bool>> kept_;
  double most_run_ = 0;
  double outside_ = 0;  ///< Statements outside all loops.
  KernelCounts counts_;
};

}  // namespace sluice::predictor
