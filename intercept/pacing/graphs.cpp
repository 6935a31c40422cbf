#include "intercept/pacing/graphs.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "intercept/driver/log.hpp"
#include "intercept/driver/threads.hpp"

namespace sluice::intercept {
namespace {

/// The devices on which a graph has kernels that get waits, and their gates.
class Places {
 public:
  explicit Places(FindPacing find) : find_(find) { (void)gate_of(nullptr); }

  /// A conditional node has the gate of the current context.
  void assign(GraphShape& shape) {
    for (GraphShape::Node& node : shape.nodes) {
      node.gate = gate_of(node.context);
      if (node.child != nullptr) assign(*node.child);
    }
  }
  [[nodiscard]] const std::vector<GraphPacing>& pacings() const noexcept { return pacings_; }

 private:
  std::size_t gate_of(CUcontext context) {
    const auto known = gates_.find(context);
    if (known != gates_.end()) return known->second;
    const std::optional<GraphPacing> pacing = find_(context);
    std::size_t gate = GraphShape::kNoGate;
    if (pacing) {
      const auto same = std::find_if(
          pacings_.begin(), pacings_.end(),
          [&](const GraphPacing& each) { return each.durations == pacing->durations; });
      gate = static_cast<std::size_t>(same - pacings_.begin());
      if (same == pacings_.end()) pacings_.push_back(*pacing);
    }
    gates_.emplace(context, gate);
    return gate;
  }

  FindPacing find_;
  std::unordered_map<CUcontext, std::size_t> gates_;
  std::vector<GraphPacing> pacings_;  ///< By gate.
};

/// Sets the cost of every kernel of a graph.
class Pricing {
 public:
  Pricing(const std::vector<GraphPacing>& pacings, const GraphEstimates& estimates) noexcept
      : pacings_(pacings), estimates_(estimates) {}

  void price(GraphShape& shape) {
    for (GraphShape::Node& node : shape.nodes) {
      const bool held = node.kind == GraphShape::Kind::kKernel && node.gate != GraphShape::kNoGate;
      if (held) price(node, pacings_[node.gate]);
      if (node.child != nullptr) price(*node.child);
    }
  }
  [[nodiscard]] ColdKernels& cold() noexcept { return cold_; }
  [[nodiscard]] std::size_t kernels() const noexcept { return kernels_; }

 private:
  void price(GraphShape::Node& node, const GraphPacing& pacing) {
    ++kernels_;
    node.cost = 1;
    if (!pacing.policy.spacing.is_time()) return;
    const std::uint64_t spacing_ns = pacing.policy.spacing.ns();
    const LaunchDuration* const duration = pacing.durations->look_up(node.work);
    if (duration == nullptr || duration->longest_ns() == LaunchDuration::kUnbounded) {
      cold_.kernels.push_back(LaunchDurations::key_of(node.work));
      node.cost = estimates_.of(node.work, pacing.gpu, spacing_ns);
      return;
    }
    // Where few samples differ, the longest one counts, not kUnbounded: every wait in a graph costs
    // time as long as the graph lives.
    node.cost = duration->longest_ns();
    cold_.known_ns += node.cost;
    if (node.cost > spacing_ns) {
      node.slack_ns =
          static_cast<std::uint64_t>(static_cast<double>(node.cost) * pacing.time_scale);
    }
  }

  const std::vector<GraphPacing>& pacings_;
  const GraphEstimates& estimates_;
  ColdKernels cold_;
  std::size_t kernels_ = 0;
};

const WaitPattern* child_of(const WaitPattern& pattern, CUgraphNode node) noexcept {
  for (const WaitPattern::Child& child : pattern.children) {
    if (child.handle == node) return &child.pattern;
    if (const WaitPattern* const inside = child_of(child.pattern, node)) return inside;
  }
  return nullptr;
}

}  // namespace

void report_ungated_graph() noexcept {
  if (g_process.said_ungated_graph.exchange(true)) return;
  Line(Level::kWarn) << "a CUDA graph could not hold device waits; it runs "
                        "with one in front, so a "
                     << "critical job may wait for it to end (sluice status "
                        "shows how long it is)";
}

GraphBook::Instantiation::Instantiation(GraphBook& book, CUgraph graph, FindPacing find) noexcept
    : book_(book) {
  try {
    prepare(graph, find);
  } catch (const std::bad_alloc&) {
    waits_.take_out();  // instantiate without waits: the program's call matters
                        // more
  }
}

void GraphBook::Instantiation::prepare(CUgraph graph, FindPacing find) {
  Places places(find);
  held_ = !places.pacings().empty();
  std::optional<GraphShape> shape = read_shape(graph);
  if (!shape) return;
  places.assign(*shape);
  held_ = !places.pacings().empty();
  if (!held_) return;
  std::size_t kernels = 0;
  {
    const std::lock_guard lock(book_.estimating_);
    Pricing pricing(places.pacings(), book_.estimates_);
    pricing.price(*shape);
    cold_ = std::move(pricing.cold());
    kernels = pricing.kernels();
  }
  std::vector<std::uint64_t> spacings;
  for (const GraphPacing& each : places.pacings()) {
    const shm::Spacing& spacing = each.policy.spacing;
    spacings.push_back(spacing.is_time() ? spacing.ns() : spacing.count);
    gates_.push_back(each.words);
  }
  plan_ = plan_waits(*shape, spacings);
  paced_ = waits_.put_in(*shape, plan_.pattern, gates_);
  cold_.known_ns += plan_.pattern.count() * GraphEstimates::kWaitNs;
  Line(Level::kDebug) << "graph: " << plan_.pattern.count() << " waits in front of " << kernels
                      << " kernels, " << cold_.kernels.size() << " of unknown duration";
}

void GraphBook::Instantiation::instantiated(CUgraphExec exec, bool refused) noexcept {
  waits_.take_out();
  paced_ = paced_ && !refused;
  if (held_ && !paced_) report_ungated_graph();
  book_.forget(exec);
  if (!paced_) return;
  book_.add(exec, {std::move(plan_.pattern), std::move(gates_), std::move(cold_), nullptr},
            plan_.bounded);
}

GraphBook::Update::Update(GraphBook& book, CUgraphExec exec, CUgraph graph) noexcept {
  try {
    const std::optional<Executable> known = book.find(exec, nullptr);
    if (!known) return;
    const std::optional<GraphShape> shape = read_shape(graph);
    // A graph that does not match the pattern does not match the executable either, and the driver
    // will say so.
    if (shape) waits_.put_in(*shape, known->pattern, known->gates);
  } catch (const std::bad_alloc&) {
    waits_.take_out();
  }
}

GraphBook::ChildCopy::ChildCopy(GraphBook& book, CUgraphExec exec, CUgraphNode child, CUgraph graph,
                                std::size_t earlier) noexcept {
  if (driver().cuGraphClone == nullptr || driver().cuGraphDestroy == nullptr) return;
  try {
    const std::optional<Executable> known = book.find(exec, child);
    if (!known || driver().cuGraphClone(&copy_, graph) != CUDA_SUCCESS) return;
    for (std::size_t i = 0; i < earlier; ++i) {
      const std::optional<GraphShape> shape = read_shape(copy_);
      if (shape) waits_.put_in(*shape, known->pattern, known->gates);
      waits_.take_out();
    }
    const std::optional<GraphShape> shape = read_shape(copy_);
    if (shape && waits_.put_in(*shape, known->pattern, known->gates)) return;
  } catch (const std::bad_alloc&) {
    // The program's call is made without a copy.
  }
  waits_.forget();
  if (copy_ != nullptr) driver().cuGraphDestroy(std::exchange(copy_, nullptr));
}

GraphBook::ChildCopy::~ChildCopy() {
  waits_.forget();
  if (copy_ != nullptr) driver().cuGraphDestroy(copy_);
}

void GraphBook::captured(CUgraph graph) noexcept {
  try {
    std::vector<CUdeviceptr> gates;
    {
      const std::lock_guard lock(mutex_);
      gates = gates_;
    }
    if (gates.empty()) return;
    const std::optional<GraphShape> shape = read_shape(graph);
    if (shape) GraphWaits::take_out_copies(*shape, gates);
  } catch (const std::bad_alloc&) {
    // Then the graph keeps a wait too many.
  }
}

std::optional<GraphBook::Executable> GraphBook::find(CUgraphExec exec, CUgraphNode child) const {
  const std::lock_guard lock(mutex_);
  const auto found = executables_.find(exec);
  if (found == executables_.end()) return std::nullopt;
  const WaitPattern& whole = found->second.pattern;
  const WaitPattern* const pattern = child == nullptr ? &whole : child_of(whole, child);
  if (pattern == nullptr || pattern->count() == 0) return std::nullopt;
  return Executable{*pattern, found->second.gates, {}, nullptr};
}

void GraphBook::learn(const ColdKernels& cold, const LaunchDuration& duration) noexcept {
  if (cold.kernels.empty()) return;
  if_memory_lasts([&] {
    const std::lock_guard lock(estimating_);
    estimates_.learn(cold, duration.ns());
  });
}

LaunchDuration& GraphBook::new_duration(bool preemptible) {
  LaunchDuration* duration = nullptr;
  if (!free_.empty() && !free_.front()->is_sampled()) {
    duration = free_.front();
    free_.pop_front();
  } else {
    duration = &durations_.emplace_back();
  }
  duration->begin_graph(preemptible);
  return *duration;
}

LaunchDuration* GraphBook::duration_of(CUgraphExec exec) noexcept {
  LaunchDuration* duration = nullptr;
  ColdKernels cold;
  if_memory_lasts([&] {
    const std::lock_guard lock(mutex_);
    Executable& known = executables_[exec];
    if (known.duration == nullptr) known.duration = &new_duration(false);
    duration = known.duration;
    const bool learns = duration->ns() != LaunchDuration::kUnbounded;
    if (learns && !known.cold.kernels.empty()) cold = std::exchange(known.cold, {});
  });
  if (duration != nullptr) learn(cold, *duration);
  return duration;
}

std::optional<GraphBook::Executable> GraphBook::take(CUgraphExec exec) noexcept {
  std::optional<Executable> taken;
  {
    const std::lock_guard lock(mutex_);
    const auto found = executables_.find(exec);
    if (found == executables_.end()) return taken;
    taken = std::move(found->second);
    executables_.erase(found);
  }
  const LaunchDuration* const duration = taken->duration;
  if (duration != nullptr && duration->ns() != LaunchDuration::kUnbounded) {
    learn(std::exchange(taken->cold, {}), *duration);
  }
  return taken;
}

void GraphBook::forget(CUgraphExec exec) noexcept {
  if (const std::optional<Executable> before = take(exec)) ended(*before);
}

void GraphBook::ended(const Executable& executable) noexcept {
  if (executable.duration == nullptr) return;
  if_memory_lasts([&] {  // otherwise its duration is never used again
    const std::lock_guard lock(mutex_);
    free_.push_back(executable.duration);
  });
}

/// For want of memory, an update of this executable will fail; the program still has the
/// executable.
void GraphBook::put_back(CUgraphExec exec, Executable executable) noexcept {
  if_memory_lasts([&] {
    const std::lock_guard lock(mutex_);
    executables_.insert_or_assign(exec, std::move(executable));
  });
}

void GraphBook::add(CUgraphExec exec, Executable executable, bool preemptible) noexcept {
  if_memory_lasts([&] {
    const std::lock_guard lock(mutex_);
    for (const GateWords& words : executable.gates) {
      const bool known = std::find(gates_.begin(), gates_.end(), words.gate) != gates_.end();
      if (!known) gates_.push_back(words.gate);
    }
    executable.duration = &new_duration(preemptible);
    executables_.insert_or_assign(exec, std::move(executable));
  });
}

}  // namespace sluice::intercept
