#include "intercept/jobs/spending.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice::intercept {

void Spending::ended(std::uint64_t now, std::uint64_t took) noexcept {
  const std::uint64_t before = std::exchange(now_ns_, std::max(now, now_ns_));
  const double passed = before == 0 ? 0 : static_cast<double>(now_ns_ - before);
  const double kept = std::exp(-passed / kMinuteNs);
  for (double& spent : spent_ns_) spent *= kept;
  const auto ns = static_cast<double>(took);
  took_ns_ = took_ns_ * kept + ns;
  items_ = std::min(items_ + 1, kFirstItems);
  item_ns_ += (ns - item_ns_) / items_;
  const double rate = all_spent();
  if (rate > part_) overdrawn_ = true;
  if (rate <= (1 - kRepaid) * part_) overdrawn_ = false;
}

void Spending::spend(Lever lever, double ns) noexcept {
  spent_ns_[static_cast<std::size_t>(lever)] += ns;
}

/// Few items show little: one accident among them is no reason to give nothing for a minute.
double Spending::alone_ns() const noexcept {
  double spent = 0;
  for (const double each : spent_ns_) spent += each;
  return std::max({took_ns_ - spent, kFirstItems * item_ns_, 1.0});
}

double Spending::spent(Lever lever) const noexcept {
  return std::max(spent_ns_[static_cast<std::size_t>(lever)], 0.0) / alone_ns();
}

double Spending::all_spent() const noexcept {
  return spent(Lever::kClosing) + spent(Lever::kWindows) + spent(Lever::kOpen);
}

double Spending::left() const noexcept {
  return std::max(part_ - spent(Lever::kClosing), kLeast * part_);
}

}  // namespace sluice::intercept
