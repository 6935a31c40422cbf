#include "predictor/source/kernel_reader.hpp"

#include <algorithm>
#include <charconv>
#include <random>

namespace sluice::predictor {
namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The end of what the bracket at `open` encloses: the place of its counterpart.
std::size_t counterpart(std::string_view text, std::size_t open) {
  const char opens = text[open];
  const char closes = opens == '[' ? ']' : ')';
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    if (text[i] == opens) ++depth;
    if (text[i] == closes && --depth == 0) return i;
  }
  return text.size();
}

double to_number(std::string_view digits) {
  double number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

/// The element type of an array or a pointer, without a vector's width.
std::int64_t bytes_of(std::string_view type) {
  if (type.starts_with("double") || type.starts_with("int64_t") || type.starts_with("long")) return 8;
  if (type.starts_with("half") || type.starts_with("short")) return 2;
  if (type.starts_with("bool") || type.starts_with("uchar") || type.starts_with("int8_t") ||
      type.starts_with("signed char") || type.starts_with("unsigned char")) {
    return 1;
  }
  return 4;
}

/// 4 of "float4".
std::int64_t width_of(std::string_view type) {
  const char last = type.empty() ? ' ' : type.back();
  return last >= '2' && last <= '8' ? last - '0' : 1;
}

bool is_vector_of_integers(std::string_view type) {
  return type == "int2" || type == "int3" || type == "int4";
}

/// The names of the parameters of a kernel, with their types.
template <class Take>
void for_each_parameter(std::string_view signature, Take take) {
  std::size_t begin = 0;
  while (begin < signature.size()) {
    std::size_t end = signature.find(',', begin);
    if (end == std::string_view::npos) end = signature.size();
    std::string_view parameter = signature.substr(begin, end - begin);
    while (parameter.starts_with(' ')) parameter.remove_prefix(1);
    const std::size_t name = parameter.find_last_of(" *");
    if (name != std::string_view::npos && parameter.find('*') != std::string_view::npos) {
      take(parameter.substr(name + 1), parameter);
    }
    begin = end + 1;
  }
}

}  // namespace

KernelReader::KernelReader(const profiler::Kernel& kernel, std::string_view signature,
                           const std::vector<std::string_view>& lines)
    : kernel_(kernel), lines_(lines) {
  for_each_parameter(signature, [this](std::string_view name, std::string_view type) {
    arrays_[name] = {Memory::kGlobal, bytes_of(type)};
  });
  // The same warps each time, so that the same program has the same counts.
  std::mt19937_64 random(0);
  const std::uint64_t threads = kernel.threads();
  const std::uint64_t warps = (threads + kWarpLanes - 1) / kWarpLanes;
  std::array<IndexValue, 3> thread;
  std::array<IndexValue, 3> block;
  Mask inside;
  for (std::size_t w = 0; w < kSampledWarps; ++w) {
    const std::uint64_t of_grid = random() % std::max<std::uint64_t>(kernel.blocks(), 1);
    const std::uint64_t of_block = random() % std::max<std::uint64_t>(warps, 1);
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
    if (line.starts_with("for (")) {
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
      synced_lines_.insert(open.begin(), open.end());
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
    loop.trips = std::max(1.0, to_number(line.substr(less + 3)));
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
  times_ *= loop.trips;
  counts_.branches += times_;
  loops_.push_back(loop);
}

void KernelReader::end_loop() {
  const Loop loop = loops_.back();
  loops_.pop_back();
  if (loop.indexes_local) counts_.unrolled = std::max(counts_.unrolled, loop.trips * loop.statements);
  if (loop.run > most_run_) {
    most_run_ = loop.run;
    counts_.hot_text = loop.own;
    counts_.hot_trips = times_;
  }
  times_ /= loop.trips;
  if (loops_.empty()) return;
  loops_.back().statements += loop.statements * (loop.indexes_local ? loop.trips : 1);
  loops_.back().text += loop.text;
}

void KernelReader::begin_condition(std::string_view line) {
  const std::string_view condition = line.substr(4, counterpart(line, 3) - 4);
  Mask mask;
  Arithmetic ignored;
  for (const Reference& each : references(condition, ignored)) access(each, false);
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

/// "[__shared__] [alignas(64)] TYPE NAME[N];", "TYPE NAME;", "TYPE NAME = VALUE;"
bool KernelReader::declare(std::string_view line) {
  const std::string_view whole = line;
  for (const std::string_view word : {"extern ", "__shared__ ", "volatile ", "const "}) {
    if (line.starts_with(word)) line.remove_prefix(word.size());
  }
  if (line.starts_with("alignas(")) {
    line.remove_prefix(std::min(line.find(") "), line.size() - 2) + 2);
  }
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return whole.size() != line.size();
  const std::string_view type = line.substr(0, space);
  if (!std::ranges::all_of(type, is_name) || std::isdigit(static_cast<unsigned char>(type[0])) != 0) {
    return false;
  }
  const std::string_view rest = line.substr(space + 1);
  const std::size_t end = std::min(rest.find_first_of(" =[;"), rest.size());
  const std::string_view name = rest.substr(0, end);
  if (name.empty() || !std::ranges::all_of(name, is_name)) return false;
  if (rest.substr(end).starts_with('[')) {
    declare_array(line, whole.find("__shared__") == std::string_view::npos ? "local" : "shared");
    return true;
  }
  const std::size_t equals = rest.find(" = ");
  if (is_vector_of_integers(type)) integer_vectors_.insert(name);
  if (equals == std::string_view::npos) return true;
  std::string_view value = rest.substr(equals + 3);
  if (value.ends_with(';')) value.remove_suffix(1);
  if (is_vector_of_integers(type)) {
    declare_vector(name, value);
  } else if (type == "int" || type == "int64_t" || type == "bool" || type == "uint" ||
             type == "long") {
    indices_.define(name, value);
  } else {
    assign(name, rest.substr(equals + 3));
  }
  return true;
}

/// "TYPE NAME[N];"
void KernelReader::declare_array(std::string_view line, std::string_view memory) {
  const std::size_t space = line.find(' ');
  const std::size_t open = line.find('[');
  const std::string_view type = line.substr(0, space);
  const double elements = to_number(line.substr(open + 1));
  const bool shared = memory == "shared";
  arrays_[line.substr(space + 1, open - space - 1)] = {shared ? Memory::kShared : Memory::kLocal,
                                                       bytes_of(type)};
  (shared ? counts_.shared_bytes : counts_.local_bytes) +=
      elements * static_cast<double>(bytes_of(type));
}

/// "make_int4(A, B, C, D)", or another vector.
void KernelReader::declare_vector(std::string_view name, std::string_view value) {
  // Names such as "v__1.x" are views, so they are taken from a set that keeps them.
  static constexpr std::string_view kParts = "xyzw";
  const auto part_of = [this](std::string_view vector, char part) {
    return std::string_view(
        *component_names_.insert(std::string(vector) + '.' + part).first);
  };
  if (!value.starts_with("make_int")) {
    for (const char part : kParts) indices_.define(part_of(name, part), part_of(value, part));
    return;
  }
  const std::size_t open = value.find('(');
  std::size_t begin = open + 1;
  int depth = 0;
  std::size_t part = 0;
  for (std::size_t i = begin; i < value.size() && part < kParts.size(); ++i) {
    if (value[i] == '(') ++depth;
    if ((value[i] == ',' || value[i] == ')') && depth == 0) {
      indices_.define(part_of(name, kParts[part++]), value.substr(begin, i - begin));
      begin = i + 1;
      while (begin < value.size() && value[begin] == ' ') ++begin;
    }
    if (value[i] == ')') --depth;
  }
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
  loop.text += 1;
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
  // Inside the index of what is written, there may be references, too.
  const auto written = references(left, ignored);
  for (const Reference& each : references(right, rest)) access(each, false);
  for (std::size_t i = 0; i < written.size(); ++i) access(written[i], i + 1 == written.size());
  add(rest);
}

void KernelReader::add(const Arithmetic& rest) {
  const double times = times_ * active_warps(masks_.back().first);
  const double fused = std::min(rest.multiplications, rest.additions);
  counts_.fma += times * fused;
  counts_.float_ops +=
      times * (rest.multiplications + rest.additions - 2 * fused + rest.extremes);
  counts_.divisions += times * rest.divisions;
  counts_.functions += times * rest.functions;
  counts_.shuffles += times * rest.shuffles;
}

/// One reference at `name`, which ends at `at`: "NAME[INDEX]", or "*(float4*)(NAME + INDEX)".
void KernelReader::take_reference(std::string_view text, std::size_t& at, std::size_t name,
                                  std::vector<Reference>& found, Arithmetic& rest) const {
  const std::string_view array = text.substr(name, at - name);
  const std::size_t close = counterpart(text, at);
  const std::string_view index = text.substr(at + 1, close - at - 1);
  at = std::min(close + 1, text.size());
  Arithmetic ignored;
  for (const Reference& inner : references(index, ignored)) found.push_back(inner);
  if (arrays_.contains(array)) found.push_back({array, index, 1});
  (void)rest;
}

std::vector<KernelReader::Reference> KernelReader::references(std::string_view text,
                                                              Arithmetic& rest) const {
  std::vector<Reference> found;
  std::size_t at = 0;
  while (at < text.size()) {
    if (text.substr(at).starts_with("*(") && at + 2 < text.size() && is_name(text[at + 2])) {
      const std::size_t star = text.find("*)(", at);
      const std::size_t plus = text.find(" + ", at);
      const std::string_view type = text.substr(at + 2, star == std::string_view::npos ? 0 : star - at - 2);
      if (star != std::string_view::npos && plus != std::string_view::npos &&
          std::ranges::all_of(type, is_name)) {
        const std::size_t close = counterpart(text, star + 2);
        found.push_back({text.substr(star + 3, plus - star - 3),
                         text.substr(plus + 3, close - plus - 3), width_of(type)});
        at = close + 1;
        continue;
      }
    }
    if (is_name(text[at]) && (std::isdigit(static_cast<unsigned char>(text[at])) == 0)) {
      const std::size_t name = at;
      while (at < text.size() && (is_name(text[at]) || text[at] == '.')) ++at;
      if (at < text.size() && text[at] == '[') {
        take_reference(text, at, name, found, rest);
      } else if (at < text.size() && text[at] == '(') {
        const std::string_view called = text.substr(name, at - name);
        if (called == "max" || called == "min") {
          rest.extremes += 1;
        } else if (called.starts_with("__shfl")) {
          rest.shuffles += 1;
        } else if (called.ends_with('f') || called.starts_with("exp") || called.starts_with("__exp")) {
          rest.functions += 1;
        }
      }
      continue;
    }
    if (std::isdigit(static_cast<unsigned char>(text[at])) != 0) {  // also 0x1p-3f and 1e-5f
      while (at < text.size() && (is_name(text[at]) || text[at] == '.' ||
                                  ((text[at] == '-' || text[at] == '+') &&
                                   (text[at - 1] == 'p' || text[at - 1] == 'e')))) {
        ++at;
      }
      continue;
    }
    // A sign or a star of a type has no space behind it, nor have the operators of vectors around.
    const bool spaced = at > 0 && text[at - 1] == ' ' && text.substr(at + 1).starts_with(' ');
    const bool of_vector = at > 0 && is_name(text[at - 1]) && at + 1 < text.size() && is_name(text[at + 1]);
    if (spaced || of_vector) {
      if (text[at] == '*') rest.multiplications += 1;
      if (text[at] == '+' || text[at] == '-') rest.additions += 1;
      if (text[at] == '/') rest.divisions += 1;
    }
    ++at;
  }
  return found;
}

double KernelReader::times_outside(std::uint64_t loops) const {
  double times = 1;
  for (const Loop& loop : loops_) {
    if (loop.syncs || (loops & loop.bit) != 0) times *= loop.trips;
  }
  return times;
}

AccessCost KernelReader::cost_of(const Array& array, const Reference& reference,
                                 std::uint64_t& loops) {
  const auto key = std::tuple(
      reference.index, array.bytes * 64 + reference.elements * 2 + (array.memory == Memory::kShared),
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
    if (c == '+' || c == '*' || c == '-' || c == '&' || (c == '>' && index[i - 1] == '>')) {
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
  if (first) counts_.local_accesses += times * active_warps(masks_.back().first);
}

void KernelReader::access(const Reference& reference, bool store) {
  const auto array = arrays_.find(reference.array);
  if (array == arrays_.end()) return;
  if (array->second.memory == Memory::kLocal) {
    const double times = times_ * active_warps(masks_.back().first) *
                         static_cast<double>(reference.elements);
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
