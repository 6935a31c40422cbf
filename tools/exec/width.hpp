#pragma once
#include <optional>
#include <string>

#include "shm/snapshot.hpp"

/// The part of the SMs that a best-effort program may use under MPS: `--sms`.
namespace sluice::tools {

inline constexpr const char* kWidthForms = "auto, all, 50% (of the SMs), 66 (SMs)";

struct Width {
  enum class Kind { kAuto, kAll, kPercent, kSms };
  Kind kind = Kind::kAuto;
  int number = 0;  ///< Percent, or SMs.
};

/// Nothing if the text is none of kWidthForms.
[[nodiscard]] std::optional<Width> parse_width(const std::string& text);

/// What is wrong with the text; empty if nothing is.
[[nodiscard]] std::string check_width(const std::string& text);

/// The least percentage of MPS that is not less than `sms` of `all` SMs. 1 <= sms <= all.
[[nodiscard]] int percent_of_sms(int sms, int all);

/// What `auto` chooses next to a busy critical program.
inline constexpr int kHalf = 50;

/// A client above `priority` that leaves no time to others: it has run a job for a minute without
/// an end, as a program with steps does, or has been busy in nearly all of the time between the two
/// looks, with one job after the other. Null: none.
[[nodiscard]] const shm::ClientSnapshot* busy_above(const shm::Snapshot& before,
                                                    const shm::Snapshot& now, int priority);

}  // namespace sluice::tools
