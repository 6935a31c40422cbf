#include "engine/train/memory_fit.hpp"

#include <algorithm>

namespace sluice::engine {
namespace {

constexpr std::size_t kSizes = 16;

/// Halves round up, as in Python.
std::uint64_t whole(double bytes, double least) {
  return static_cast<std::uint64_t>(std::max(bytes, least) + 0.5);
}

}  // namespace

void MemoryFit::saw(std::size_t items, std::uint64_t resident, std::uint64_t peak) {
  resident_now_ = std::max(resident_now_, resident);
  if (warm_) added_[items] = peak > resident ? static_cast<double>(peak - resident) : 0;
  warm_ = true;  // the first micro-batch also allocates what libraries keep
}

void MemoryFit::saw_outside(std::uint64_t peak) { outside_ = std::max(outside_, peak); }

void MemoryFit::batch_ended() {
  if (resident_now_ == 0) return;  // a batch that was not measured says nothing
  resident_last_ = resident_now_;
  resident_now_ = 0;
}

void MemoryFit::lacked_memory(std::size_t items, std::uint64_t grant) {
  cap_ = Cap{grant, items * 3 / 4};
  if (items == 1) doubted_ = SLUICE_NO_LIMIT;
}

std::optional<MemoryFit::Line> MemoryFit::fit() const {
  if (added_.empty()) return std::nullopt;
  const auto count = static_cast<double>(added_.size());
  double mean_items = 0;
  double mean_added = 0;
  for (const auto& [items, added] : added_) {
    mean_items += static_cast<double>(items) / count;
    mean_added += added / count;
  }
  double spread = 0;
  double product = 0;
  for (const auto& [items, added] : added_) {
    const double distance = static_cast<double>(items) - mean_items;
    spread += distance * distance;
    product += distance * (added - mean_added);
  }
  const std::uint64_t slope =
      whole(added_.size() == 1 ? mean_added / mean_items : product / spread, 1);
  const std::uint64_t fixed = whole(mean_added - static_cast<double>(slope) * mean_items, 0);
  const std::uint64_t outside = outside_ > slope ? outside_ - slope : 0;
  return Line{std::max(std::max(resident_last_, resident_now_) + fixed, outside), slope};
}

std::size_t MemoryFit::items(std::uint64_t grant, std::size_t most) {
  if (cap_ && grant > cap_->grant) cap_.reset();
  const std::size_t most_now = cap_ ? std::min(most, cap_->items) : most;
  std::size_t items = most_now;
  if (const auto line = fit(); line && grant != SLUICE_NO_LIMIT) {
    const std::uint64_t room = grant > line->base ? grant - line->base : 0;
    items = std::min<std::uint64_t>(most_now, room / line->slope);
  }
  if (items == 0 && grant >= doubted_) return 1;
  const std::size_t step = std::max<std::size_t>(1, most / kSizes);
  return items == most_now || items < step ? items : items - items % step;
}

std::optional<std::size_t> MemoryFit::to_measure(std::size_t most) const {
  if (!warm_ || added_.empty()) return 1;
  if (added_.size() > 1) return std::nullopt;
  return std::max<std::size_t>(1, most / 2);
}

}  // namespace sluice::engine
