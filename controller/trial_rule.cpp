#include "controller/trial_rule.hpp"

#include <algorithm>

namespace sluice::controller {

TrialRule::Do TrialRule::tick(std::uint64_t now_ns, Seen seen,
                              const std::function<bool()>& foreign) {
  if (!seen.quiet) quiet_since_ns_ = 0;
  if (seen.quiet && quiet_since_ns_ == 0) quiet_since_ns_ = now_ns;
  if (seen.running) {
    const bool over = !seen.quiet || now_ns - began_ns_ >= kLongestNs || foreign();
    return over ? Do::kEnd : Do::kNothing;
  }
  if (!seen.quiet || !seen.wanted || now_ns < next_ns_) return Do::kNothing;
  if (now_ns - quiet_since_ns_ < kQuietNs) return Do::kNothing;
  if (foreign()) {
    quiet_since_ns_ = now_ns;
    return Do::kNothing;
  }
  began_ns_ = now_ns;
  next_ns_ = now_ns + pause_ns_;
  pause_ns_ = std::min(2 * pause_ns_, kMostPauseNs);
  return Do::kBegin;
}

}  // namespace sluice::controller
