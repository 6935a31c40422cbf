#include "engine/train/micro_batches.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/clock.hpp"
#include "engine/torch/torch_error.hpp"
#include "sluice/sluice.h"

namespace sluice::engine {
namespace {

/// How often a wait lets the program handle signals.
constexpr std::uint32_t kWaitMs = 200;

/// Then a micro-batch of one item is tried, whatever the line says.
constexpr std::uint64_t kTrustLineNs = 1'000'000'000;

/// After a refused launch, at most.
constexpr int kStaleErrors = 3;
/// In a row, that come with a refused allocation and do not say so.
constexpr int kLibraryErrors = 3;

bool names_the_gpu(std::string_view error) {
  return std::ranges::any_of(std::array{"CUDA", "CUBLAS", "CUDNN", "Triton"},
                             [&](const char* name) { return error.find(name) != error.npos; });
}

/// Repeats an action that fails with the error of a launch that was refused before: CUDA reports it
/// to the next call that asks for errors. The action may be begun twice.
template <class Action>
void past_stale_errors(const Action& action) {
  for (int left = kStaleErrors;; --left) {
    try {
      return action();
    } catch (const OutOfMemory&) {
      throw;
    } catch (const std::exception& error) {
      if (left == 0 || !names_the_gpu(error.what())) throw;
    }
  }
}

unsigned kind_of(std::uint64_t order) { return static_cast<unsigned>(order & 0xffU); }

/// An order of an unknown kind is obeyed as a sleep, which gives back the most.
bool sleeps(std::uint64_t order) { return kind_of(order) >= SLUICE_ORDER_SLEEP; }

}  // namespace

MicroBatches::MicroBatches(Droppable& work, Options options)
    : work_(work), options_(std::move(options)) {
  options_.largest = std::clamp<std::size_t>(options_.largest, 1, options_.batch);
}

void MicroBatches::run_batch() {
  publish();
  for (std::size_t start = 0; start < options_.batch;) {
    const std::size_t items = next_size(options_.batch - start);
    if (run_micro_batch(start, items)) start += items;
  }
  line_.batch_ended();
  ++counts_.batches;
}

/// Between batches, so that the first fit has the state of the optimizer.
void MicroBatches::publish() {
  const auto fit = line_.fit();
  if (!fit || fit == published_) return;
  sluice_memory_fit(fit->base, fit->slope);
  published_ = fit;
}

/// Of the next micro-batch, with `left` items of the batch to go.
std::size_t MicroBatches::next_size(std::size_t left) {
  sluice_critical(1);
  obey_pending();
  std::size_t size = 0;
  const std::uint64_t begin = base::monotonic_ns();
  std::uint64_t best = 0;  // while the training sleeps, its grant is small
  for (;;) {
    const std::uint64_t grant = sluice_memory_grant();
    if ((size = line_.items(grant, options_.largest)) > 0) break;
    const std::uint64_t now = base::monotonic_ns();
    if (lacks_since_ns_ == 0) lacks_since_ns_ = now;
    best = std::max(best, grant);
    if (now - begin > kTrustLineNs) line_.doubt(best);
    const bool long_ago = now - lacks_since_ns_ > options_.say_after_ns;
    if (long_ago && options_.on_lack && !std::exchange(said_lack_, true)) {
      options_.on_lack(grant, sluice_memory_held());
    }
    wait_once();
    obey_pending();
  }
  if (const auto wanted = line_.to_measure(options_.largest); wanted && memory()) {
    size = std::min({size, *wanted, left});
  } else {
    // Even parts: a small rest takes a GPU as long to start as a large part.
    const std::size_t parts = (left + size - 1) / size;
    size = (left + parts - 1) / parts;
  }
  note_adjusted(size);
  counts_.micro_batch_size = size;
  return size;
}

/// Returns whether the micro-batch counts.
bool MicroBatches::run_micro_batch(std::size_t start, std::size_t items) {
  ++counts_.tried;
  work_.save();
  const auto before = memory();
  if (before) line_.saw_outside(before->peak);
  work_.restart_peak();
  bool failed = false;
  refused_ = sluice_memory_refused();
  sluice_critical(0);
  try {
    work_.run(start, items);
  } catch (const std::exception& error) {
    sluice_critical(1);
    if (!may_drop_for(error, items)) throw;
    failed = true;
  }
  sluice_critical(1);
  // A library may have hidden that its launch was refused. Refusal lasts until the order is done,
  // so without such an order every launch was accepted.
  if (!failed && kind_of(sluice_order()) < SLUICE_ORDER_DROP) {
    if (before) line_.saw(items, before->resident, memory()->peak);
    work_.restart_peak();
    work_.keep();
    ++counts_.finished;
    library_errors_ = 0;
    lacks_since_ns_ = 0;
    said_lack_ = false;
    return true;
  }
  ++counts_.killed;
  work_.drop();
  obey(sluice_order());
  past_stale_errors([this] { work_.restore(); });
  return false;
}

/// Libraries have texts of their own for a refused launch, so an order explains every error. An
/// error of the program itself comes again when the micro-batch is repeated.
bool MicroBatches::may_drop_for(const std::exception& error, std::size_t items) {
  if (kind_of(sluice_order()) >= SLUICE_ORDER_DROP) {
    stale_errors_ = kStaleErrors;
    return true;
  }
  bool lacked = dynamic_cast<const OutOfMemory*>(&error) != nullptr;
  if (!lacked && sluice_memory_refused() != refused_ && library_errors_ < kLibraryErrors) {
    ++library_errors_;
    lacked = true;
  }
  if (lacked) {
    const std::uint64_t grant = sluice_memory_grant();
    if (grant != SLUICE_NO_LIMIT) line_.lacked_memory(items, grant);
    return grant != SLUICE_NO_LIMIT;
  }
  // Libraries report the error of an earlier launch once more: in 9 of 308 cases on an H200.
  if (stale_errors_ == 0 || !names_the_gpu(error.what())) return false;
  --stale_errors_;
  return true;
}

void MicroBatches::obey_pending() {
  const std::uint64_t order = sluice_order();
  if (order == 0 && sluice_memory_held() <= std::max(sluice_memory_grant(), held_anyway_)) return;
  if (const auto use = memory()) line_.saw_outside(use->peak);
  if (order != 0) return obey(order);
  // What cannot be repeated, such as an optimizer step, may take more than the grant.
  free_memory(SLUICE_ORDER_SHRINK);
  held_anyway_ = sluice_memory_held();
}

/// What the framework may hold after an order. Order 0: a lack of memory under a grant, for which
/// the whole cache is given back, because its parts may have been too small.
std::uint64_t MicroBatches::allowed(std::uint64_t order) {
  const std::uint64_t grant = sluice_memory_grant();
  if (order == 0 || sleeps(order)) return 0;
  if (grant == SLUICE_NO_LIMIT) return SLUICE_NO_LIMIT;
  const auto use = work_.memory();
  const std::uint64_t all = sluice_memory_held();
  const std::uint64_t others = use && all > use->held ? all - use->held : 0;
  return grant > others ? grant - others : 0;
}

/// The peak begins again: that of a dropped micro-batch, and of keeping a part of the cache, is not
/// that of the time between two micro-batches.
void MicroBatches::free_memory(std::uint64_t order) {
  past_stale_errors([&] { work_.free_memory(allowed(order)); });
  work_.restart_peak();
}

/// Gives memory back, and sleeps if the order says so. Order 0: only gives memory back. Afterwards
/// no launch is refused.
void MicroBatches::obey(std::uint64_t order) {
  const std::uint64_t begin = base::monotonic_ns();
  const auto before = memory();
  free_memory(order);
  const auto after = memory();
  freed_at_ns_ = base::monotonic_ns();
  if (!adjustment_) {
    adjustment_ = Adjustment{.batch = counts_.batches,
                             .before = counts_.micro_batch_size,
                             .after = 0,
                             .freed_ns = freed_at_ns_ - begin,
                             .waited_ns = 0,
                             .bytes_before = before ? before->held : 0,
                             .bytes_after = after ? after->held : 0};
  }
  bool drops_epoch = false;
  while (order != 0) {
    drops_epoch |= kind_of(order) == SLUICE_ORDER_EPOCH;
    sluice_order_done(order);
    sluice_critical(1);
    if (sleeps(order)) sleep();
    // While launches are refused, sluice_critical() does nothing and an order is pending.
    order = sluice_order();
    if (order != 0) free_memory(order);
  }
  if (!drops_epoch || !options_.restores_epochs) return;
  // All that the epoch has done is lost.
  counts_.batches = counts_.finished = 0;
  counts_.killed = counts_.tried;
  throw EpochDropped();
}

void MicroBatches::sleep() {
  const std::uint64_t begin = base::monotonic_ns();
  bool said = !options_.on_sleep;
  while (!wait_once()) {
    if (said || base::monotonic_ns() - begin <= options_.say_after_ns) continue;
    options_.on_sleep();
    said = true;
  }
}

/// Whether there is a new order or grant, and no sleep any more.
bool MicroBatches::wait_once() {
  const std::uint64_t begin = base::monotonic_ns();
  const bool news = sluice_wait_resume(kWaitMs) != 0;
  counts_.waited_ns += base::monotonic_ns() - begin;
  if (!news && options_.on_wait) options_.on_wait();
  return news;
}

void MicroBatches::note_adjusted(std::size_t size) {
  if (!adjustment_) return;
  adjustment_->after = size;
  adjustment_->waited_ns = base::monotonic_ns() - freed_at_ns_;
  if (options_.on_adjust) options_.on_adjust(*adjustment_);
  adjustment_.reset();
}

std::optional<MemoryUse> MicroBatches::memory() {
  auto use = work_.memory();
  if (use) {
    most_bytes_ = std::max(most_bytes_, use->held);
    // What the process holds outside of the framework counts too.
    const std::uint64_t all = sluice_memory_held();
    const std::uint64_t others = all > use->held ? all - use->held : 0;
    use->resident += others;
    use->peak += others;
  }
  return use;
}

EpochCounts MicroBatches::take_counts() {
  EpochCounts next;
  next.micro_batch_size = counts_.micro_batch_size;  // an order may come before the next one
  return std::exchange(counts_, next);
}

}  // namespace sluice::engine
