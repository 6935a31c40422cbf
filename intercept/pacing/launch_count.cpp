#include "intercept/pacing/launch_count.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "intercept/driver/process.hpp"
#include "intercept/driver/threads.hpp"

namespace sluice::intercept {
namespace {

/// Whether membarrier works. If not, there are no stripes, because the launching threads would have
/// to order their own counts.
bool can_order() noexcept {
  int works = g_process.membarrier_works.load();
  if (works < 0) {  // racing threads find the same
    works = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 ? 1 : 0;
    g_process.membarrier_works.store(works);
  }
  return works == 1;
}

int take_stripe() noexcept {
  if (!can_order()) return -1;
  const pid_t self = thread_id();
  auto& owners = g_process.stripe_owners;
  int taken = -1;
  for (std::size_t i = 0; i < owners.size() && taken < 0; ++i) {
    pid_t owner = owners[i].load();
    const bool free = owner == 0 || owner == self || ThreadMarks::is_gone(owner);
    if (free && owners[i].compare_exchange_strong(owner, self)) taken = static_cast<int>(i);
  }
  return taken;
}

}  // namespace

int launch_stripe() noexcept {
  constexpr int kUnknown = -2;
  static constinit thread_local int stripe = kUnknown;
  if (stripe == kUnknown) stripe = take_stripe();
  return stripe;
}

bool others_have_stripes() noexcept {
  const pid_t self = thread_id();
  return std::ranges::any_of(g_process.stripe_owners, [self](const std::atomic<pid_t>& owner) {
    const pid_t thread = owner.load();
    return thread != 0 && thread != self;
  });
}

void order_launch_counts() noexcept {
  if (!others_have_stripes()) return;
  const int saved_errno = errno;
  // A filter that the program has installed since may refuse it. What a processor has not written
  // after so long, it writes never.
  constexpr std::uint64_t kLongNs = 20'000;
  if (can_order() && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) {
    nap_while([] { return true; }, kLongNs);
  }
  errno = saved_errno;
}

}  // namespace sluice::intercept
