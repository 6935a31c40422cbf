#!/usr/bin/env bash
# A program that is never idle, next to best effort: what its steps take, and what best effort gets. Conditions take
# turns. `steps.sh sim` does the same on the simulated GPU. KERNELS: of a step, KERNEL_US each, HOST_US of the host in
# front of each. ROUNDS, SECONDS_EACH: of GPU time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

gpu=${1:-real}
rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-20} kernels=${KERNELS:-200} kernel_us=${KERNEL_US:-100} host_us=${HOST_US:-0}
export PATH=$PWD/build/bin:$PATH
spin=$PWD/build/libexec/sluice/sluice-example-spin
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
server=("$spin" --kernels "$kernels" --kernel-us "$kernel_us" --host-us "$host_us" --in-flight 2 --seconds "$seconds")
train=("$spin" --kernels 20 --kernel-us 200 --seconds "$seconds")

run() { # NAME SESSION OPTIONS...: the server under these options, with best effort below
  local name=$1 session=$2
  shift 2
  sluice exec --session "$session" --gpu "$gpu" --priority 0 -- "${train[@]}" >"$folder/train" &
  sluice exec --session "$session" --gpu "$gpu" --priority 1 --name server "$@" -- "${server[@]}" >"$folder/server" &
  local last=$!
  (
    sleep $((seconds * ($([[ $gpu == sim ]] && echo 9 || echo 1)) * 4 / 5))
    sluice status --session "$session" | grep -E 'steps take|gates (open|stay)|target' >"$folder/status" || true
  ) &
  wait "$last"
  wait
  printf '%-16s %s | %s\n' "$name" "$(cut -d: -f2 "$folder/server")" "$(cut -d: -f2 "$folder/train")"
  cat "$folder/status"
}

for ((round = 1; round <= rounds; ++round)); do
  echo "round $round: steps of the server | jobs of best effort"
  session=steps-$$-$round
  sluice exec --session "$session-alone" --gpu "$gpu" --priority 1 -- "${server[@]}" | cut -d: -f2
  sluice exec --session "$session-train" --gpu "$gpu" --priority 0 -- "${train[@]}" | cut -d: -f2
  if [[ $gpu == real ]]; then
    "${train[@]}" >"$folder/train" &
    printf '%-16s %s' "no Sluice" "$("${server[@]}" | cut -d: -f2)"
    wait
    printf ' | %s\n' "$(cut -d: -f2 "$folder/train")"
  fi
  run "gives nothing" "$session-first" --give 0
  run "5 %" "$session-law"
  run "step p99=1.2x" "$session-target" --target "step p99=1.2x"
done
