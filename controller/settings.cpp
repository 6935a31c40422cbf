#include "controller/settings.hpp"

#include <algorithm>

#include "shm/give.hpp"
#include "shm/memory_limit.hpp"
#include "shm/policy.hpp"
#include "shm/slice.hpp"
#include "shm/target.hpp"
#include "shm/weight.hpp"

namespace sluice::controller {
namespace {

using shm::Request;

bool valid_policy(std::uint64_t packed) {
  const shm::Policy policy = shm::Policy::unpack(packed);
  return policy.pack() == packed && policy.valid();
}

bool valid_target(std::uint64_t packed) {
  const shm::Target target = shm::Target::unpack(packed);
  return target.pack() == packed && target.valid();
}

bool valid_give(std::uint16_t field) { return shm::said_give(field).value_or(0) <= shm::kMostGive; }

/// What of it is refused matters to a client that may hold others.
void begin_give(shm::Slot& slot, const Request& request, const Terms& terms, std::string& notice) {
  const std::optional<std::uint32_t> said = shm::said_give(request.give);
  const std::uint32_t give = std::max(said.value_or(shm::kDefaultGive), terms.min_give);
  const bool is_default = !said && give == shm::kDefaultGive;
  slot.requested_give.store(is_default ? 0 : shm::pack_give(give));
  if (!said || give == *said || request.priority == 0 || !notice.empty()) return;
  notice = "give " + shm::give_text(*said) + " is below the site policy's limit; gives " +
           shm::give_text(give) + " (min_give in the site policy)";
}

template <class Word, class Value, class Text>
void change(Word& word, Value asked, Value keep, const char* name, Text text,
            std::string& changes) {
  const Value before = word.load();
  if (asked == keep || asked == before) return;
  word.store(asked);
  changes += std::string(", ") + name + " " + text(before) + " -> " + text(asked);
}

}  // namespace

std::string fault_of_settings(const Request& request) {
  const bool sets = request.kind == shm::RequestKind::kSet;
  const auto keeps = [sets](auto asked, auto keep) { return sets && asked == keep; };
  if (!keeps(request.priority, shm::kKeepPriority) && request.priority > 255) {
    return "priority " + std::to_string(request.priority) + " is not in 0-255";
  }
  if (!keeps(request.policy, shm::kKeepPolicy) && !valid_policy(request.policy)) {
    return "unknown policy";
  }
  if (!keeps(request.target, shm::kKeepTarget) && !valid_target(request.target)) {
    return "unknown target";
  }
  if (!keeps(request.slice, shm::kKeepSlice) && !shm::is_slice(request.slice)) {
    return "unknown time slice";
  }
  if (!keeps(request.weight, shm::kKeepWeight) && request.weight > shm::kMostWeight) {
    return "unknown weight";
  }
  if (!valid_give(request.give)) return "unknown give";
  if (!keeps(request.memory, shm::kKeepMemory) && !shm::valid_memory_limit(request.memory)) {
    return "a memory limit of " + std::to_string(request.memory) + " bytes is out of range";
  }
  return {};
}

void begin_settings(shm::Slot& slot, const Request& request, const Terms& terms,
                    std::string& notice) {
  slot.requested_policy.store(request.policy);
  slot.requested_target.store(request.target);
  const std::uint32_t slice = shm::allowed_slice(request.slice, terms.max_slice);
  slot.requested_slice.store(slice);
  slot.slice_ceiling.store(terms.max_slice);
  slot.requested_weight.store(std::min(request.weight, terms.max_weight));
  if (request.weight > terms.max_weight && notice.empty()) {
    notice = "weight " + shm::weight_text(request.weight) +
             " is above the site policy's limit; runs with " + shm::weight_text(terms.max_weight);
  }
  if (slice != request.slice && notice.empty()) {
    notice = "slice " + shm::slice_text(request.slice) + ": others would wait for it; runs with " +
             shm::slice_text(slice) + " (max_slice in the site policy)";
  }
  begin_give(slot, request, terms, notice);
}

std::string fault_of_own_terms(const Request& request, const Terms& terms) {
  if (request.weight != shm::kKeepWeight && request.weight > terms.max_weight) {
    return "weight " + shm::weight_text(request.weight) + ": the site policy allows at most " +
           shm::weight_text(terms.max_weight);
  }
  const std::optional<std::uint32_t> give = shm::said_give(request.give);
  if (give && *give < terms.min_give) {
    return "give " + shm::give_text(*give) + ": the site policy wants at least " +
           shm::give_text(terms.min_give) + " (min_give)";
  }
  const bool longer = request.slice != shm::kKeepSlice &&
                      shm::allowed_slice(request.slice, terms.max_slice) != request.slice;
  if (!longer) return {};
  return "slice " + shm::slice_text(request.slice) + ": others would wait for it; at most " +
         shm::slice_text(terms.max_slice) + " (max_slice in the site policy)";
}

std::string change_settings(shm::Slot& slot, const Request& request) {
  std::string changes;
  change(
      slot.requested_policy, request.policy, shm::kKeepPolicy, "policy",
      [](std::uint64_t packed) { return shm::to_string(shm::Policy::unpack(packed)); }, changes);
  change(
      slot.requested_target, request.target, shm::kKeepTarget, "target",
      [](std::uint64_t packed) { return shm::to_string(shm::Target::unpack(packed)); }, changes);
  // Whoever changes it may allow more than the client's own user has.
  const bool is_time = request.slice != shm::kKeepSlice && request.slice != shm::kSliceOff;
  if (is_time) slot.slice_ceiling.store(std::max(slot.slice_ceiling.load(), request.slice));
  change(slot.requested_slice, request.slice, shm::kKeepSlice, "slice", shm::slice_text, changes);
  change(slot.requested_weight, request.weight, shm::kKeepWeight, "weight", shm::weight_text,
         changes);
  const std::uint32_t give = shm::unpack_give(slot.requested_give.load());
  const std::uint32_t asked = shm::said_give(request.give).value_or(give);
  change(
      slot.requested_give, asked == give ? 0 : shm::pack_give(asked), std::uint32_t{0}, "give",
      [](std::uint32_t word) { return shm::give_text(shm::unpack_give(word)); }, changes);
  return changes;
}

}  // namespace sluice::controller
