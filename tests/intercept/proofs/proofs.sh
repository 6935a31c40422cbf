#!/usr/bin/env bash
# Proofs on the built libsluice_intercept.so. usage: proofs.sh PROOF LIBRARY SOURCE CUDA_INCLUDE [OBJECT...]
# Each proof prints what breaks it and fails. Needs binutils and g++ only. OBJDUMP: that of the library's machine.
set -euo pipefail

proof=$1 library=$2 source=$3 cuda_include=$4
shift 4
objects=("$@")
failed=0
export LC_ALL=C
objdump=${OBJDUMP:-objdump}
case $(readelf -h "$library" | sed -n 's/^ *Machine: *//p') in
  AArch64)
    relative=R_AARCH64_RELATIV calls='blr?' jumps='br|b' returns='ret' leave='br[[:space:]]+x16'
    dynamic_tls='R_AARCH64_TLS(GD|LD|DESC)_' fixed_tls=R_AARCH64_TLS_TPREL
    ;;
  *)
    relative=R_X86_64_RELATIVE calls='call' jumps='jmp' returns='ret' leave='jmp +\*'
    dynamic_tls='R_X86_64_(TLSGD|TLSLD|GOTPC32_TLSDESC)' fixed_tls=R_X86_64_TPOFF64
    ;;
esac

complain() {
  echo "$proof: $*" >&2
  failed=1
}

# same EXPECTED FOUND WHAT: two sorted lists, a name per line.
same() {
  local only
  only=$(comm -23 <(echo "$1") <(echo "$2"))
  [[ -z $only ]] ||
    complain "$3 lacks:" "$only"
  only=$(comm -13 <(echo "$1") <(echo "$2"))
  [[ -z $only ]] ||
    complain "$3 has, but should not:" "$only"
}

launches() { sed -n 's/^SLUICE_LAUNCH_ENTRY(\([A-Za-z0-9_]*\))$/\1/p' "$source/shm/launch_entries.def"; }
hooks() { launches; sed -n 's/^SLUICE_HOOK(\([A-Za-z0-9_]*\), *[A-Za-z]*)$/\1/p' "$source/intercept/driver/hooks.def"; }
calls() { sed -nE 's/^SLUICE_(OPTIONAL_)?CALL\(([A-Za-z0-9_]*)\)$/\2/p' "$source/intercept/driver/calls.def"; }
# Every name that cuda.h declares, also of older versions and per-thread forms.
declared() {
  g++ -E -x c++ -I"$cuda_include" - <<<$'#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>' |
    grep -oE '\bcu[A-Z][A-Za-z0-9_]*' | sort -u
}
exported() { nm -D --defined-only --format=posix "$library" | awk '{print $1}'; }

# A symbol too many would take a program's own function away; one too few leaves a way past us.
prove_exports() {
  local expected
  expected=$( (hooks; printf '%s\n' dlsym ioctl sluice_v1_job_announce sluice_v1_job_announce_on sluice_v1_job_begin sluice_v1_job_begin_on sluice_v1_job_cancel sluice_v1_job_end sluice_v1_attached sluice_v1_set_target sluice_v1_memory_grant sluice_v1_memory_held sluice_v1_memory_held_on sluice_v1_memory_refused sluice_v1_memory_fit sluice_v1_order sluice_v1_order_done sluice_v1_wait_resume sluice_v1_critical) | sort)
  same "$expected" "$(exported | sort)" "the export list"
  nm -D "$library" | grep ' A ' >/dev/null &&
    complain "a version node is exported: hooks must be unversioned"
  return 0
}

# Addresses in .init_array, from the relative relocations that fill it.
init_array() {
  local section address size
  section=$(readelf -WS "$library" | sed 's/^ *\[ *[0-9]*\] *//' | awk '$1 == ".init_array" {print $3, $5}')
  read -r address size <<<"$section"
  readelf -Wr "$library" | awk "/$relative/"' {print $1, $4}' | while read -r place target; do
    if ((16#$place >= 16#$address && 16#$place < 16#$address + 16#$size)); then echo "$target"; fi
  done
}

# The preload is inherited by every shell and helper: nothing of ours may run in them.
prove_constructors() {
  local target name
  readelf -WS "$library" | grep -E ' \.(ctors|preinit_array) ' >/dev/null &&
    complain "has .ctors or .preinit_array"
  [[ -n $(init_array) ]] ||
    complain "cannot read .init_array"
  while read -r target; do
    name=$(nm "$library" | awk -v a="$target" '{sub(/^0+/, "", $1)} $1 == a && $2 ~ /[tT]/ && $3 !~ /^[$]/ && !n++ {print $3}')
    case $name in
      frame_dummy) ;;                                            # crt
      _GLOBAL__sub_I_eh_alloc.cc | _GLOBAL__sub_I_system_error.cc) ;;  # libstdc++
      _GLOBAL__sub_I_locale*.cc | _GLOBAL__sub_I_ios*.cc) ;;     # libstdc++, where pulled in
      init_have_lse_atomics | __cpu_indicator_init) ;;           # libgcc
      _GLOBAL__sub_I_mapping.cpp) prove_page_size_only ;;        # Boost's page size
      *) complain "constructor at $target: ${name:-no symbol}" ;;
    esac
  done < <(init_array)
}

# The static initialiser of mapping.cpp may only ask for the page size.
prove_page_size_only() {
  local called
  called=$("$objdump" -d --no-show-raw-insn "$library" | awk '/^[0-9a-f]+ <_GLOBAL__sub_I_mapping.cpp>:/,/^$/' |
    sed -nE "s/.*\\b($calls|$jumps)[[:space:]].*<([^>+]*)>.*/\\2/p" | sort -u)
  [[ $called == sysconf@plt ]] ||
    complain "mapping.cpp constructs more than Boost's page size:" "$called"
}

# The images of containers have older versions than the build machine.
prove_glibc() {
  local newer needed
  newer=$(readelf -W --dyn-syms "$library" | grep -oE '[A-Za-z0-9_]+@GLIBC_[0-9.]+' |
    awk -F'@GLIBC_|[.]' '$2 > 2 || $3 > 31' | sort -u)
  [[ -z $newer ]] ||
    complain "asks for a glibc newer than 2.31 (intercept/driver/old_glibc.cpp):" "$newer"
  # With 2.31, what old_glibc.cpp calls is in these.
  for needed in libpthread.so.0 libdl.so.2; do
    readelf -dW "$library" | grep -F "[$needed]" >/dev/null ||
    complain "does not need $needed"
  done
}

prove_imports() {
  nm -D --undefined-only "$library" | grep -E ' U dlsym(@|$)' >/dev/null &&
    complain "imports dlsym: our own code must use real_dlsym, or it finds itself"
  readelf -dW "$library" | grep -E 'NEEDED.*(libstdc\+\+|libgcc_s)' >/dev/null &&
    complain "needs libstdc++ or libgcc_s: brings another C++ runtime into the program"
  readelf -dW "$library" | grep -E 'NEEDED.*(libcuda|libcudart)' >/dev/null &&
    complain "needs libcuda: shells would load it"
  readelf -dW "$library" | grep 'TEXTREL' >/dev/null &&
    complain "has text relocations"
  return 0
}

# General-dynamic TLS of a preloaded library calls malloc on first use, inside any hook.
prove_tls() {
  local object
  ((${#objects[@]})) ||
    complain "got no object files to look at"
  for object in "${objects[@]}"; do
    [[ -r $object ]] ||
    complain "cannot read $object"
    readelf -Wr "$object" | grep -E "$dynamic_tls" >/dev/null &&
      complain "$object: thread-local storage is not initial-exec"
  done
  readelf -Wr "$library" | grep "$fixed_tls" >/dev/null ||
    complain "no initial-exec TLS at all: is this the right file?"
}

prove_table() {
  local declared name twins
  [[ $(hooks | wc -l) == $(cat "$source"/{shm/launch_entries,intercept/driver/hooks}.def | grep -cE '^SLUICE_(HOOK|LAUNCH_ENTRY)') ]] ||
    complain "a hook table has a line that is not SLUICE_HOOK(name, kind) or SLUICE_LAUNCH_ENTRY(name)"
  [[ -z $(hooks | sort | uniq -d) ]] ||
    complain "twice in hooks.def:" "$(hooks | sort | uniq -d)"
  [[ -z $(comm -12 <(hooks | sort) <(calls | sort)) ]] ||
    complain "in hooks.def and calls.def:" "$(comm -12 <(hooks | sort) <(calls | sort))"
  declared=$(declared)
  for name in $(hooks; calls); do
    grep -qx "$name" <<<"$declared" ||
    complain "$name is not in cuda.h"
  done
  # Each per-thread form that cuda.h declares for a hook is a way past it.
  for name in $(hooks | grep -vE '_pt(sz|ds)$'); do
    twins=$(grep -xE "${name}_pt(sz|ds)" <<<"$declared" || true)
    [[ -z $twins ]] || hooks | grep -x "$twins" >/dev/null ||
    complain "$twins is not hooked"
  done
  calls | grep -E '_pt(sz|ds)$' >&2 &&
    complain "calls.def names a per-thread form: our calls name the stream"
  # Launches come first, because their order is the order of Slot::entries.
  local first room
  first=$(grep -m1 -nE '^SLUICE_HOOK' "$source/intercept/driver/hooks.def" | cut -d: -f1)
  [[ $(grep -nF launch_entries.def "$source/intercept/driver/hooks.def" | cut -d: -f1) -lt $first ]] ||
    complain "the launch entries do not come first"
  grep -qE '^SLUICE_HOOK\([A-Za-z0-9_]*, *Launch\)' "$source/intercept/driver/hooks.def" &&
    complain "hooks.def has a launch entry of its own, which no slot counts"
  room=$(grep -A2 'kMaxEntries =' "$source/shm/board.hpp" | grep -oE '[0-9]+' | head -n1)
  (($(launches | wc -l) <= room)) ||
    complain "$(launches | wc -l) launch entries, but a slot has room for $room"
}

# A launch, a capture or an executable graph that nobody has thought of passes us by.
prove_entries() {
  local asked known new
  asked=$(declared | grep -E 'Launch|apture|GraphInstantiate|GraphExec')
  known=$( (hooks; sed '/^#/d; s/ .*//' "$source/tests/intercept/proofs/unhooked.txt") | sort -u)
  new=$(comm -23 <(echo "$asked") <(echo "$known"))
  [[ -z $new ]] ||
    complain "neither in hooks.def nor in unhooked.txt:" "$new"
}

# RTLD_NEXT and RTLD_DEFAULT are resolved from the return address: the way out must be a jump.
# The instructions of a function.
body_of() {
  "$objdump" -d --no-show-raw-insn "$library" | awk "/^[0-9a-f]+ <$1>:/,/^\$/" | sed '1d;/^$/d'
}

prove_dlsym() {
  local body
  body=$(body_of dlsym)
  [[ -n $body ]] ||
    complain "no function dlsym"
  grep -E "\b$returns" <<<"$body" >/dev/null &&
    complain "dlsym returns by itself: RTLD_NEXT would be resolved for us"
  [[ $(grep -cE "\b$calls\b" <<<"$body") == 1 && $(grep -E "\b$calls\b" <<<"$body") == *sluice_find_real_dlsym* ]] ||
    complain "dlsym calls more than the first-time look-up:" "$(grep -E "\b$calls\b" <<<"$body")"
  [[ $(grep -cE "\b$leave" <<<"$body") == 2 ]] ||
    complain "dlsym does not end in jumps to the real one"
}

# Every program calls ioctl, and for most of its calls the hook must be a jump.
prove_ioctl() {
  local body
  body=$(body_of ioctl)
  [[ -n $body ]] ||
    complain "no function ioctl"
  grep -E "\b($calls|$returns)" <<<"$body" >/dev/null &&
    complain "ioctl calls or returns; it has to leave by a jump"
  (($(wc -l <<<"$body") <= 12)) ||
    complain "ioctl has more than 12 instructions:" "$body"
}

case $proof in
  exports) prove_exports ;;
  constructors) prove_constructors ;;
  glibc) prove_glibc ;;
  imports) prove_imports ;;
  tls) prove_tls ;;
  table) prove_table ;;
  entries) prove_entries ;;
  dlsym) prove_dlsym ;;
  ioctl) prove_ioctl ;;
  *) complain "no such proof" ;;
esac
((failed == 0)) && echo "$proof: holds"
exit "$failed"
