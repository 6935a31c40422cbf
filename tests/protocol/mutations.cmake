# Proof that the protocol tests can fail. Each mutation removes or reverses one line of a copy of
# shm/gates.hpp, and protocol_check must then find a violation. A mutation without a violation means that
# the line is not needed, or that a scenario is missing.
#
# The test protocol.mutations_build builds the programs, if something that they are made of has changed since; the
# normal build leaves them out.
set(gates ${PROJECT_SOURCE_DIR}/shm/gates.hpp)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${gates})
file(READ ${gates} SLUICE_GATES)
add_custom_target(protocol_mutations)
add_test(NAME protocol.mutations_build COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR}
                                               --target protocol_mutations)
set_tests_properties(protocol.mutations_build PROPERTIES
  FIXTURES_SETUP protocol_mutations LABELS protocol TIMEOUT 600 PROCESSORS 2 COST 300)

# sluice_mutation(NAME OLD NEW): replaces OLD, which must occur exactly once, by NEW.
function(sluice_mutation name old new)
  string(FIND "${SLUICE_GATES}" "${old}" first)
  string(FIND "${SLUICE_GATES}" "${old}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "mutations.cmake, ${name}: this text must occur exactly once in ${gates}:\n${old}")
  endif()
  string(REPLACE "${old}" "${new}" mutated "${SLUICE_GATES}")
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/mutations/${name})
  file(CONFIGURE OUTPUT ${folder}/shm/gates.hpp CONTENT "${mutated}" @ONLY)
  add_executable(protocol_mutation_${name} EXCLUDE_FROM_ALL calls.cpp)
  target_include_directories(protocol_mutation_${name} BEFORE PRIVATE ${folder})
  # Some mutations leave a parameter unused.
  target_compile_options(protocol_mutation_${name} PRIVATE -w -g0)
  target_link_libraries(protocol_mutation_${name} PRIVATE sluice_protocol_model
                                                          sluice_protocol_main)
  set_target_properties(protocol_mutation_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${folder})
  add_dependencies(protocol_mutations protocol_mutation_${name})
  add_test(NAME protocol.mutation.${name} COMMAND protocol_mutation_${name} --violated)
  set_tests_properties(protocol.mutation.${name} PROPERTIES
    FIXTURES_REQUIRED protocol_mutations LABELS protocol TIMEOUT 300)
endfunction()

# holds(), open_bits()
sluice_mutation(holds_other_devices "h.device == t.device && h.priority" "h.priority")
sluice_mutation(holds_equal_priority "h.priority > t.priority" "h.priority >= t.priority")
sluice_mutation(holds_leaving_target "t.state == SlotState::kLive &&" "")
sluice_mutation(dead_holds "return h.state == SlotState::kLive && is_active" "return is_active")
sluice_mutation(idle_holds "is_active(job) && t.state" "t.state")
sluice_mutation(opens_every_bit "fetch_and(~bits)" "fetch_and(0)")

# settle() reads all its inputs a second time.
sluice_mutation(settle_reads_once "if (board.info(holder).load() == h &&" "if (true ||")
sluice_mutation(settle_reads_holder_once "if (board.info(holder).load() == h &&" "if (")
sluice_mutation(settle_reads_target_once "&& board.info(target).load() == t &&" "&&")
sluice_mutation(settle_reads_job_once "board.job(holder).load() == job &&" "")
sluice_mutation(settle_reads_waived_once
  "&& board.waived(target, holder).load() == waived &&" "&&")
sluice_mutation(settle_ignores_waived "may_hold && waived != job &&" "may_hold &&")
sluice_mutation(settle_reads_draining_once
  "board.draining(target).load() == draining) {" "true) {")
sluice_mutation(settle_ignores_draining "waived != job && !is_draining(draining)) {" "waived != job) {")

# Draining.
sluice_mutation(begin_draining_does_not_settle
  [[  board.draining(target).store(broker);
  settle_own_gate(board, target);]]
  [[  board.draining(target).store(broker);]])
sluice_mutation(begin_draining_drains_anybody
  "if (SlotInfo::unpack(board.info(target).load()).generation != generation) {" "if (false) {")
sluice_mutation(end_draining_does_not_settle
  [[  settle_own_gate(board, target);
  board.draining(target).compare_exchange(ends, 0);]]
  [[  board.draining(target).compare_exchange(ends, 0);]])
sluice_mutation(end_draining_clears_at_once
  [[  settle_own_gate(board, target);
  board.draining(target).compare_exchange(ends, 0);]]
  [[  board.draining(target).compare_exchange(ends, 0);
  settle_own_gate(board, target);]])
sluice_mutation(tend_draining_does_nothing "if (!lives) end_draining(board, self, broker);" "")
sluice_mutation(tend_draining_sees_no_end "word & ~kDrainEnds;" "(word & kDrainEnds) != 0 ? 0 : word;")

# Jobs.
sluice_mutation(begin_counts_last
  [[  board.job(self).fetch_add(1);
  for_each_other(board.used().load(), self, [&](int target) {
    // Read first: most slots need no change, and a read keeps their cache line shared.
    const SlotInfo t = SlotInfo::unpack(board.info(target).load());
    const SlotInfo h = SlotInfo::unpack(board.info(self).load());
    if (holds(h, 1, t)) settle(board, self, target);
  });]]
  [[  for_each_other(board.used().load(), self, [&](int target) {
    const SlotInfo t = SlotInfo::unpack(board.info(target).load());
    const SlotInfo h = SlotInfo::unpack(board.info(self).load());
    if (holds(h, 1, t)) close_bit(board, target, self);
  });
  board.job(self).fetch_add(1);]])
sluice_mutation(begin_looks_before_it_counts
  [[  board.job(self).fetch_add(1);
  for_each_other(board.used().load(), self, [&](int target) {
    // Read]]
  [[  const std::uint64_t used = board.used().load();
  board.job(self).fetch_add(1);
  for_each_other(used, self, [&](int target) {
    // Read]])
sluice_mutation(begin_does_not_settle
  "if (holds(h, 1, t)) settle(board, self, target);"
  "if (holds(h, 1, t)) close_bit(board, target, self);")
sluice_mutation(end_does_not_open
  [[  for_each_other(board.used().load(), self,
                 [&](int target) { open_bits(board, target, bit(self)); });
}

/// Corrects every bit in the gate]]
  [[}

/// Corrects every bit in the gate]])
sluice_mutation(end_counts_last
  [[  board.job(self).fetch_add(1);
  for_each_other(board.used().load(), self,
                 [&](int target) { open_bits(board, target, bit(self)); });]]
  [[  for_each_other(board.used().load(), self,
                 [&](int target) { open_bits(board, target, bit(self)); });
  board.job(self).fetch_add(1);]])

# States.
sluice_mutation(change_state_overwrites
  [[    info.state = to;
    if (board.info(slot).compare_exchange(word, info.pack())) return true;]]
  [[    info.state = to;
    board.info(slot).store(info.pack());
    return true;]])
sluice_mutation(go_live_leaves_own_gate
  [[  settle_own_gate(board, self);
  settle_held_gates(board, self);
  return true;]]
  [[  settle_held_gates(board, self);
  return true;]])
sluice_mutation(go_live_leaves_held_gates
  [[  settle_own_gate(board, self);
  settle_held_gates(board, self);
  return true;]]
  [[  settle_own_gate(board, self);
  return true;]])
sluice_mutation(keep_open_does_nothing
  "  open_bits(board, self, ~std::uint64_t{0});" "")
sluice_mutation(leave_in_two_steps
  [[  change_state(board, self, {SlotState::kReserved, SlotState::kLive}, SlotState::kLeaving);]]
  [[  if (!change_state(board, self, {SlotState::kLive}, SlotState::kLeaving)) {
    change_state(board, self, {SlotState::kReserved}, SlotState::kLeaving);
  }]])
sluice_mutation(leave_only_when_live
  "change_state(board, self, {SlotState::kReserved, SlotState::kLive}, SlotState::kLeaving);"
  "change_state(board, self, {SlotState::kLive}, SlotState::kLeaving);")
sluice_mutation(leave_keeps_own_gate
  [[  keep_open(board, self);
  for_each_other(board.used().load(), self,]]
  [[  for_each_other(board.used().load(), self,]])
sluice_mutation(leave_keeps_held_gates
  [[  keep_open(board, self);
  for_each_other(board.used().load(), self,
                 [&](int target) { open_bits(board, target, bit(self)); });]]
  [[  keep_open(board, self);]])

# max_hold.
sluice_mutation(waive_does_not_settle
  [[  board.waived(self, holder).store(job);
  settle(board, holder, self);]]
  [[  board.waived(self, holder).store(job);]])
sluice_mutation(waive_settles_first
  [[  board.waived(self, holder).store(job);
  settle(board, holder, self);]]
  [[  settle(board, holder, self);
  board.waived(self, holder).store(job);]])

# Liveness between peers.
sluice_mutation(mark_dead_does_nothing
  "  if (info.state != SlotState::kLive || board.watched(slot)) return false;" "  return false;")
sluice_mutation(mark_dead_looks_at_the_mutex_first
  [[  std::uint64_t word = board.info(slot).load();
  SlotInfo info = SlotInfo::unpack(word);
  if (info.state != SlotState::kLive || board.watched(slot)) return false;]]
  [[  if (board.watched(slot)) return false;
  std::uint64_t word = board.info(slot).load();
  SlotInfo info = SlotInfo::unpack(word);
  if (info.state != SlotState::kLive) return false;]])
sluice_mutation(mark_dead_of_reserved
  "  if (info.state != SlotState::kLive || board.watched(slot)) return false;"
  "  if (!lives(info.state) || board.watched(slot)) return false;")
sluice_mutation(mark_dead_overwrites
  [[  info.state = SlotState::kDead;
  return board.info(slot).compare_exchange(word, info.pack());]]
  [[  info.state = SlotState::kDead;
  board.info(slot).store(info.pack());
  return true;]])
sluice_mutation(tend_gate_does_nothing
  "  for_each_other(board.gate(self).load(), self, [&](int holder) { settle(board, holder, self); });"
  "")
sluice_mutation(tend_readers_does_nothing
  "    if (board.reader(target).load() != 0) tend_gate(board, target);" "")
sluice_mutation(outranked_by_other_devices "(lives(info.state) && info.device == own.device &&" "(lives(info.state) &&")
sluice_mutation(outranked_by_equal_priority
  "info.priority > own.priority" "info.priority >= own.priority")
sluice_mutation(outranked_by_the_dead "(lives(info.state) && info.device" "(info.device")
sluice_mutation(outranked_not_by_reserved
  "(lives(info.state) && info.device"
  "(lives(info.state) && info.state != SlotState::kReserved && info.device")
sluice_mutation(settle_outranked_reads_once
  "    if (is_outranked(board, slot) == outranked) return;" "    return;")
sluice_mutation(settle_outranked_never_lowers
  ": board.outranked(slot).fetch_and(~std::uint64_t{kOutranked});" ": 0;")

# The controller.
sluice_mutation(bury_leaves_the_state
  [[  change_state(board, slot, {SlotState::kReserved,]]
  [[  if (false) change_state(board, slot, {SlotState::kReserved,]])
sluice_mutation(bury_keeps_held_gates
  "  for_each_other(~std::uint64_t{0}, slot, [&](int target) { open_bits(board, target, bit(slot)); });"
  "")
sluice_mutation(bury_looks_at_used_slots_only
  "for_each_other(~std::uint64_t{0}, slot," "for_each_other(board.used().load(), slot,")
sluice_mutation(bury_keeps_own_gate
  [[open_bits(board, target, bit(slot)); });
  keep_open(board, slot);]]
  [[open_bits(board, target, bit(slot)); });]])
sluice_mutation(bury_once_only "  bury(board, slot);
  const SlotInfo old" "  const SlotInfo old")
sluice_mutation(release_leaves_job_odd
  "  if (is_active(board.job(slot).load())) board.job(slot).fetch_add(1);" "")
sluice_mutation(release_keeps_used "  board.used().fetch_and(~bit(slot));" "")
sluice_mutation(reserve_keeps_waived
  "  for (int holder = 0; holder < kSlots; ++holder) board.waived(slot, holder).store(0);" "")
sluice_mutation(reserve_keeps_draining "  board.draining(slot).store(0);" "")
sluice_mutation(reserve_sets_used_last
  [[  board.used().fetch_or(bit(slot));
  board.info(slot).store(SlotInfo{SlotState::kReserved, priority, device, old.generation}.pack());]]
  [[  board.info(slot).store(SlotInfo{SlotState::kReserved, priority, device, old.generation}.pack());
  board.used().fetch_or(bit(slot));]])
sluice_mutation(reserve_forgets_used "  board.used().fetch_or(bit(slot));" "")
sluice_mutation(change_priority_overwrites
  [[    info.priority = priority;
  } while (!board.info(slot).compare_exchange(word, info.pack()));]]
  [[    info.priority = priority;
  } while (false);
  board.info(slot).store(info.pack());]])
sluice_mutation(change_priority_leaves_own_gate
  [[  settle_own_gate(board, slot);
  settle_held_gates(board, slot);]] "  settle_held_gates(board, slot);")
sluice_mutation(change_priority_leaves_held_gates
  [[  settle_own_gate(board, slot);
  settle_held_gates(board, slot);]] "  settle_own_gate(board, slot);")
