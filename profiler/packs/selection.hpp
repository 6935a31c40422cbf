#pragma once
#include <map>
#include <set>
#include <string>
#include <utility>

#include "profiler/packs/pack.hpp"

namespace sluice::profiler {

/// Which programs of one or several packs are measured or compiled: each once, and the first ones
/// of each task.
class Selection {
 public:
  /// `per_task`: 0 for all. `only`: ids; empty for all.
  explicit Selection(std::size_t per_task, std::set<std::string> only = {})
      : per_task_(per_task), only_(std::move(only)) {}

  /// Whether to take the program. `bare`: it cannot be, since it has neither a source nor a binary.
  /// It is one of its task all the same: a later pack may have its source.
  [[nodiscard]] bool take(const Program& program, bool bare);
  /// Programs that were bare in each pack.
  [[nodiscard]] std::size_t bare() const { return bare_.size(); }

 private:
  std::size_t per_task_;
  std::set<std::string> only_;
  std::map<std::string, std::size_t> of_task_;
  std::set<std::string> taken_;
  std::set<std::string> bare_;
};

}  // namespace sluice::profiler
