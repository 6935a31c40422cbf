#include "profiler/packs/selection.hpp"

namespace sluice::profiler {

bool Selection::take(const Program& program, bool bare) {
  if (!only_.empty() && !only_.contains(program.id)) return false;
  if (taken_.contains(program.id)) return false;
  const bool counted = bare_.contains(program.id);
  if (!counted && ++of_task_[program.task] > per_task_ && per_task_ != 0) return false;
  if (bare) {
    bare_.insert(program.id);
    return false;
  }
  bare_.erase(program.id);
  taken_.insert(program.id);
  return true;
}

}  // namespace sluice::profiler
