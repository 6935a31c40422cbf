#!/usr/bin/env bash
# What a client that waits for its gate pays beside a process that does not wait: a client under policy
# none, or a process outside Sluice. Needs an NVIDIA GPU, a finished ./x build and torchvision; about
# 4 minutes.
#
#   tests/real_gpu/neighbour.sh [FOLDER FOR RESULTS]     SECONDS_EACH=6
set -u
cd "$(dirname "$0")/../.." || exit
out=${1:-results/real-gpu-neighbour}
mkdir -p "$out"
out=$(cd "$out" && pwd)
sluice=$PWD/build/bin/sluice
seconds=${SECONDS_EACH:-6}
export SLUICE_SESSION=neighbour-$$
serve=(python3 tests/real_gpu/inference_loop.py "$seconds")
train=(python3 tests/real_gpu/training_loop.py)
idle=(python3 -c 'import time, torch; torch.zeros(1).cuda(); time.sleep(600)')
background=()
finish() {
  ((${#background[@]} == 0)) || kill "${background[@]}" 2>/dev/null
  wait
  background=()
}
trap finish EXIT
start() { # LOG COMMAND...: in the background, until finish
  "${@:2}" >"$out/$1.log" 2>&1 &
  background+=($!)
}
say() { tail -n "${3:-3}" "$out/$1.log" | sed "s/^/$2: /"; }

echo "== the GPU time of a wait whose condition is true, beside a process that keeps the GPU busy"
start busy "$PWD/build/libexec/sluice/sluice-example-spin" --kernels 100 --kernel-us 50
sleep 3
python3 tests/real_gpu/wait_cost.py --rounds 2
finish

echo "== serving beside training, both outside Sluice"
start train "${train[@]}" 600
sleep 10
"${serve[@]}" >"$out/serve.log" 2>&1
finish
say serve "no Sluice" 3

# An idle client of priority 2 makes the server one that can be held, so that its graph holds waits.
for neighbour in outside none device:200us; do
  start idle "$sluice" exec --priority 2 -- "${idle[@]}"
  sleep 6
  case $neighbour in
    outside) start train "${train[@]}" 600 ;;
    *) start train "$sluice" exec --priority 0 --policy "$neighbour" -- "${train[@]}" 600 ;;
  esac
  sleep 10
  "$sluice" exec --priority 1 --policy device:200us -- "${serve[@]}" >"$out/serve-$neighbour.log" 2>&1
  finish
  say "serve-$neighbour" "served under device:200us, trained $neighbour" 3
done

echo "== training under device:200us, held by nobody, beside a server outside Sluice"
for policy in none device:200us; do
  start idle "$sluice" exec --priority 2 -- "${idle[@]}"
  start serve-outside "${serve[@]/%$seconds/600}"
  sleep 10
  "$sluice" exec --priority 0 --policy $policy -- "${train[@]}" "$seconds" >"$out/train-$policy.log" 2>&1
  finish
  say "train-$policy" "trained $policy, served outside" 1
done
