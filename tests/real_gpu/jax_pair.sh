#!/usr/bin/env bash
# Runs jax_pair.py's two programs alone, together without Sluice, and together under Sluice's default
# policy, on a machine with one NVIDIA GPU, torch and JAX. Prints the request times of the critical
# program and the speed of the best-effort one. About two minutes. EVERY_MS: mean time between
# requests (default 10, near saturation). TINY=1: a request is one small kernel, which shows how long a
# graph of 14 ms delays a critical job.
#
#   tests/real_gpu/jax_pair.sh [SECONDS]
set -u
cd "$(dirname "$0")/../.." || exit
seconds=${1:-10}
every=${EVERY_MS:-10}
tiny=()
[ -z "${TINY:-}" ] || tiny=(--tiny)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
program=tests/real_gpu/jax_pair.py

wait_for() {
  for _ in $(seq 600); do [ -e "$1" ] && return; sleep 0.1; done
  echo "jax_pair.sh: $1 is not there after 60 s" >&2
}
together() { # TITLE CRITICAL_PREFIX BEST_EFFORT_PREFIX
  rm -f "$out"/ready-*
  # shellcheck disable=SC2086 # a prefix is several words, or none
  $3 python3 $program best-effort "$out/ready-be" $((seconds + 20)) >"$out/be.txt" 2>"$out/be.err" &
  local best_effort=$!
  wait_for "$out/ready-be"
  # shellcheck disable=SC2086
  echo "$1: $($2 python3 $program critical "$out/ready-c" "$seconds" --every-ms "$every" "${tiny[@]}" 2>>"$out/c.err")"
  [ -z "$3" ] || build/bin/sluice status 2>/dev/null | grep -E "waited|device:|ungated" | head -6
  wait $best_effort
  echo "$1: $(cat "$out/be.txt") (of which ${seconds} s next to the critical program)"
}

echo "alone: $(python3 $program critical "$out/ready-c" "$seconds" --every-ms "$every" "${tiny[@]}" 2>/dev/null)"
echo "alone: $(python3 $program best-effort "$out/ready-be" "$seconds" 2>/dev/null)"
together "without Sluice" "" ""
together "under Sluice" "build/bin/sluice exec --priority 1 --" "build/bin/sluice exec --priority 0 --"
cat "$out"/*.err | grep -aE "sluice\[|Error" | sort | uniq -c | sort -rn | head -5
