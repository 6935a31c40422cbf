#!/usr/bin/env bash
# The trial of time slices that a controller begins by itself: it gets an answer on an idle GPU, and ends when a program
# comes. `slice_check.sh sim` does the same on the simulated GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

gpu=${1:-real}
export PATH=$PWD/build/bin:$PATH XDG_CACHE_HOME
XDG_CACHE_HOME=$(mktemp -d)
session=slice-check-$$
spin=build/libexec/sluice/sluice-example-spin
[[ $gpu == real ]] && check=auto || check=always

finish() {
  kill "$controller" 2>/dev/null || true
  wait "$controller" || true
  rm -rf "$XDG_CACHE_HOME"
}
job() { sluice exec --session "$session" --priority 0 --gpu "$gpu" -- "$spin" --jobs 1 --kernels 1; }
trial() { pgrep -f "sluice-example-spin --seconds 60" || true; }
wait_for() { # SECONDS COMMAND...: until it prints something
  for ((i = 0; i < 10 * $1; i++)); do
    [[ -n $("${@:2}") ]] && return
    sleep 0.1
  done
  echo "slice_check: nothing in $1 s from: ${*:2}" >&2
  exit 1
}
answer() { sluice status --session "$session" | grep -o 'slices: .*obeyed.*' || true; }

sluice controller --session "$session" --check-slices "$check" &
controller=$!
trap finish EXIT
sleep 1
job
wait_for 60 trial
sleep 3
began=$(date +%s%N)
job
while [[ -n $(trial) ]]; do sleep 0.005; done
echo "a job during the trial, until both have ended: $((($(date +%s%N) - began) / 1000000)) ms"

kill "$controller"
wait "$controller" || true
sluice controller --session "$session" --check-slices "$check" &
controller=$!
sleep 1
job
wait_for 120 answer
answer
cat "$XDG_CACHE_HOME"/sluice/slices-*.json
echo
