#include "predictor/source/kernel_reader.hpp"

#include <algorithm>
#include <random>

namespace sluice::predictor {
namespace {

/// TVM's longest line has 911 characters. Reading a line takes the square of its length.
constexpr std::size_t kLongestLine = 4096;
constexpr double kMostTrips = 1 << 30;
constexpr double kMostTimes = 1e15;  ///< Of a statement, in loops inside loops.

}  // namespace

KernelReader::KernelReader(const profiler::Kernel& kernel, std::string_view signature,
                           const std::vector<std::string_view>& lines)
    : lines_(lines) {
  declare_parameters(signature);
  // The same warps each time, so that the same program has the same counts.
  std::mt19937_64 random(0);
  const std::uint64_t threads = kernel.threads();
  const std::uint64_t warps = (threads + kWarpLanes - 1) / kWarpLanes;
  std::array<IndexValue, 3> thread;
  std::array<IndexValue, 3> block;
  Mask inside;
  for (std::size_t w = 0; w < kSampledWarps; ++w) {
    const std::uint64_t of_grid = random() % kernel.blocks();
    const std::uint64_t of_block = random() % warps;
    for (std::size_t l = 0; l < kWarpLanes; ++l) {
      const std::size_t i = w * kWarpLanes + l;
      std::uint64_t t = of_block * kWarpLanes + l;
      inside[i] = t < threads;
      t = std::min(t, threads - 1);
      std::uint64_t b = of_grid;
      for (std::size_t axis = 0; axis < 3; ++axis) {
        thread[axis].lanes[i] = static_cast<std::int64_t>(t % kernel.block[axis]);
        block[axis].lanes[i] = static_cast<std::int64_t>(b % kernel.grid[axis]);
        t /= kernel.block[axis];
        b /= kernel.grid[axis];
      }
    }
  }
  constexpr std::array<std::string_view, 3> kThread{"threadIdx.x", "threadIdx.y", "threadIdx.z"};
  constexpr std::array<std::string_view, 3> kBlock{"blockIdx.x", "blockIdx.y", "blockIdx.z"};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    indices_.set(kThread[axis], thread[axis]);
    indices_.set(kBlock[axis], block[axis]);
  }
  push_mask(inside);
}

void KernelReader::push_mask(const Mask& mask) { masks_.emplace_back(mask, mask_number_++); }

KernelCounts KernelReader::read() {
  find_synced_loops();
  for (std::size_t number = 0; number < lines_.size(); ++number) {
    const std::string_view line = lines_[number];
    if (line.empty()) continue;
    if (line.size() > kLongestLine) {
      ++counts_.unread;
    } else if (line.starts_with("for (")) {
      begin_loop(line, number);
    } else if (line.starts_with("if (") && line.ends_with('{')) {
      begin_condition(line);
    } else if (line.starts_with("} else")) {
      other_condition();
    } else if (line == "}") {
      end_block();
    } else if (line.ends_with('{')) {
      blocks_.push_back(Block::kPlain);
    } else if (line.find("__syncthreads") != std::string_view::npos ||
               line.find("cp_async_") != std::string_view::npos) {
      wait(line);
    } else if (!declare(line)) {
      const std::size_t equals = line.find(" = ");
      if (equals == std::string_view::npos) continue;
      assign(line.substr(0, equals), line.substr(equals + 3));
    }
  }
  if (outside_ > most_run_) counts_.hot_text = outside_, counts_.hot_trips = 1;
  return counts_;
}

/// Loads cannot leave a loop in which the block waits, nor those around it.
void KernelReader::find_synced_loops() {
  std::vector<std::size_t> open;
  for (std::size_t number = 0; number < lines_.size(); ++number) {
    const std::string_view line = lines_[number];
    if (line.starts_with('}') && !open.empty()) open.pop_back();
    if (line.ends_with('{')) open.push_back(number);
    if (line.find("__syncthreads") != std::string_view::npos ||
        line.find("cp_async_wait") != std::string_view::npos) {
      // Those around a loop that is known are known, too.
      for (auto loop = open.rbegin(); loop != open.rend(); ++loop) {
        if (!synced_lines_.insert(*loop).second) break;
      }
    }
  }
}

/// "for (int NAME = 0; NAME < N; ++NAME) {"
void KernelReader::begin_loop(std::string_view line, std::size_t number) {
  Loop loop;
  const std::size_t equals = line.find(" = ");
  const std::size_t less = line.find(" < ");
  blocks_.push_back(Block::kLoop);
  if (equals != std::string_view::npos && less != std::string_view::npos) {
    const std::size_t name = line.rfind(' ', equals - 1) + 1;
    loop.variable = line.substr(name, equals - name);
    loop.trips = std::clamp(to_number(line.substr(less + 3)), 1.0, kMostTrips);
  }
  loop.syncs = synced_lines_.contains(number);
  loop.bit = next_bit_;
  if (next_bit_ << 1 != 0) next_bit_ <<= 1;
  if (!loop.variable.empty()) {
    // An iteration for each warp stands for all.
    std::mt19937_64 random(number);
    IndexValue value;
    value.loops = loop.bit;
    for (std::size_t w = 0; w < kSampledWarps; ++w) {
      const auto iteration = random() % static_cast<std::uint64_t>(loop.trips);
      std::fill_n(value.lanes.begin() + static_cast<std::ptrdiff_t>(w * kWarpLanes), kWarpLanes,
                  static_cast<std::int64_t>(iteration));
    }
    indices_.set(loop.variable, value);
  }
  loop.outside = times_;
  times_ = std::min(times_ * loop.trips, kMostTimes);
  counts_.branches += times_;
  loops_.push_back(loop);
}

void KernelReader::end_loop() {
  const Loop loop = loops_.back();
  loops_.pop_back();
  if (loop.indexes_local)
    counts_.unrolled = std::max(counts_.unrolled, loop.trips * loop.statements);
  if (loop.run > most_run_) {
    most_run_ = loop.run;
    counts_.hot_text = loop.own;
    counts_.hot_trips = times_;
  }
  times_ = loop.outside;
  if (loops_.empty()) return;
  loops_.back().statements += loop.statements * (loop.indexes_local ? loop.trips : 1);
}

void KernelReader::begin_condition(std::string_view line) {
  const std::string_view condition = line.substr(4, counterpart(line, 3) - 4);
  Mask mask;
  Arithmetic ignored;
  const auto arrays = [this](std::string_view name) { return arrays_.contains(name); };
  for (const Reference& each : references(condition, arrays, ignored)) access(each, false);
  try {
    const IndexValue& value = indices_.value(condition);
    for (std::size_t i = 0; i < value.lanes.size(); ++i) mask[i] = value.lanes[i] != 0;
  } catch (const NotAnIndex&) {
    mask.set();
  }
  blocks_.push_back(Block::kCondition);
  counts_.branches += times_;
  push_mask(masks_.back().first & mask);
}

void KernelReader::other_condition() {
  if (blocks_.empty() || blocks_.back() != Block::kCondition) return;
  const Mask taken = masks_.back().first;
  masks_.pop_back();
  push_mask(masks_.back().first & ~taken);
}

void KernelReader::end_block() {
  if (blocks_.empty()) return;
  const Block block = blocks_.back();
  blocks_.pop_back();
  if (block == Block::kLoop) end_loop();
  if (block == Block::kCondition) masks_.pop_back();
}

void KernelReader::wait(std::string_view line) {
  const bool all = line.find("__syncthreads") != std::string_view::npos;
  if (all) counts_.syncs += times_;
  if (all || line.find("wait") != std::string_view::npos) ++region_;
}

void KernelReader::note_statement() {
  counts_.text += 1;
  counts_.statements += times_ * active_warps(masks_.back().first);
  if (loops_.empty()) {
    outside_ += 1;
    return;
  }
  Loop& loop = loops_.back();
  loop.statements += 1;
  loop.own += 1;
  loop.run += times_;
}

void KernelReader::assign(std::string_view left, std::string_view right) {
  if (right.ends_with(';')) right.remove_suffix(1);
  const std::size_t dot = left.find('.');
  if (dot != std::string_view::npos && integer_vectors_.contains(left.substr(0, dot))) {
    indices_.define(left, right);
    try {
      count_address(right, times_outside(indices_.value(right).loops));
    } catch (const NotAnIndex&) {
      ++counts_.unread;
    }
    return;
  }
  note_statement();
  Arithmetic rest;
  Arithmetic ignored;
  const auto arrays = [this](std::string_view name) { return arrays_.contains(name); };
  // Inside the index of what is written, there may be references, too.
  const auto written = references(left, arrays, ignored);
  for (const Reference& each : references(right, arrays, rest)) access(each, false);
  for (std::size_t i = 0; i < written.size(); ++i) access(written[i], i + 1 == written.size());
  add(rest);
}

void KernelReader::add(const Arithmetic& rest) {
  const double times = times_ * active_warps(masks_.back().first);
  const double fused = std::min(rest.multiplications, rest.additions);
  counts_.fma += times * fused;
  counts_.float_ops += times * (rest.multiplications + rest.additions - 2 * fused + rest.extremes);
  counts_.divisions += times * rest.divisions;
  counts_.functions += times * rest.functions;
  counts_.shuffles += times * rest.shuffles;
}

double KernelReader::times_outside(std::uint64_t loops) const {
  double times = 1;
  for (const Loop& loop : loops_) {
    if (loop.syncs || (loops & loop.bit) != 0) times *= loop.trips;
  }
  return std::min(times, kMostTimes);
}

AccessCost KernelReader::cost_of(const Array& array, const Reference& reference,
                                 std::uint64_t& loops) {
  const auto key =
      std::tuple(reference.index,
                 array.bytes * 64 + reference.elements * 2 + (array.memory == Memory::kShared),
                 masks_.back().second);
  if (const auto known = costs_.find(key); known != costs_.end()) {
    loops = known->second.second;
    return known->second.first;
  }
  Lanes lanes{};
  try {
    const IndexValue& value = indices_.value(reference.index);
    loops = value.loops;
    lanes = value.lanes;
  } catch (const NotAnIndex&) {
    // An index that was loaded: a row of a table, say. In doubt the lanes are neighbours.
    ++counts_.unread;
    loops = ~std::uint64_t{0};
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] = static_cast<std::int64_t>(i);
  }
  const Mask& mask = masks_.back().first;
  const AccessCost cost = array.memory == Memory::kShared
                              ? shared_access(lanes, mask, reference.elements, array.bytes)
                              : global_access(lanes, mask, reference.elements, array.bytes);
  costs_[key] = {cost, loops};
  return cost;
}

/// The compiler computes an address once for all that differ by a constant.
void KernelReader::count_address(std::string_view index, double times) {
  const std::size_t plus = index.rfind(" + ");
  if (plus != std::string_view::npos && index.size() > plus + 4 &&
      std::all_of(index.begin() + static_cast<std::ptrdiff_t>(plus) + 3, index.end() - 1,
                  [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; })) {
    index = index.substr(0, plus);
  }
  if (!addresses_.insert(index).second) return;
  for (std::size_t i = 0; i < index.size(); ++i) {
    const char c = index[i];
    if (c == '+' || c == '*' || c == '-' || c == '&' ||
        (c == '>' && i > 0 && index[i - 1] == '>')) {
      counts_.integer_ops += times;
    }
    if (c == '/' || c == '%') counts_.integer_divisions += times;
  }
}

void KernelReader::index_local(const Reference& reference, bool store) {
  std::uint64_t loops = 0;
  try {
    loops = indices_.value(reference.index).loops;
  } catch (const NotAnIndex&) {
    loops = ~std::uint64_t{0};
  }
  double times = 1;
  double since = 1;  // Iterations of the loops inside which the index does not vary.
  std::uint64_t innermost = 0;
  for (Loop& loop : loops_) {
    since *= loop.trips;
    if ((loops & loop.bit) == 0) continue;
    loop.indexes_local = true;
    innermost = loop.bit;
    times *= since;
    since = 1;
  }
  const bool first = kept_.emplace(reference.array, reference.index, innermost, store).second;
  if (first)
    counts_.local_accesses += std::min(times, kMostTimes) * active_warps(masks_.back().first);
}

void KernelReader::access(const Reference& reference, bool store) {
  const auto array = arrays_.find(reference.array);
  if (array == arrays_.end()) return;
  if (array->second.memory == Memory::kLocal) {
    const double times =
        times_ * active_warps(masks_.back().first) * static_cast<double>(reference.elements);
    (store ? counts_.local_stores : counts_.local_loads) += times;
    index_local(reference, store);
    return;
  }
  access_memory(array->second, reference, store);
}

void KernelReader::access_memory(const Array& array, const Reference& reference, bool store) {
  if (generation_ != indices_.generation()) {
    generation_ = indices_.generation();
    costs_.clear();
    seen_.clear();
    addresses_.clear();
  }
  std::uint64_t loops = 0;
  const AccessCost cost = cost_of(array, reference, loops);
  const bool shared = array.memory == Memory::kShared;
  if (store) {
    (shared ? counts_.shared_stores : counts_.global_stores) += times_ * cost.requests;
    (shared ? counts_.shared_store_wavefronts : counts_.global_store_sectors) +=
        times_ * cost.passes;
    count_address(reference.index, times_outside(loops));
    return;
  }
  (shared ? counts_.written_shared_loads : counts_.written_global_loads) += times_ * cost.requests;
  (shared ? counts_.written_shared_load_wavefronts : counts_.written_global_load_sectors) +=
      times_ * cost.passes;
  const auto key = std::tuple(reference.array, reference.index, shared ? region_ : 0);
  if (!seen_.emplace(key, true).second) return;
  const double times = times_outside(loops);
  (shared ? counts_.shared_loads : counts_.global_loads) += times * cost.requests;
  (shared ? counts_.shared_load_wavefronts : counts_.global_load_sectors) += times * cost.passes;
  if (!shared) counts_.global_load_lines += times * cost.lines;
  count_address(reference.index, times);
}

}  // namespace sluice::predictor
