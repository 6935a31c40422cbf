#!/usr/bin/env bash
# What best effort pays for neighbours that do nothing: PyTorch training without Sluice, under Sluice alone,
# next to an idle critical program, and next to an idle JAX program of priority 0 in addition. Prints the
# time of a step, in several rounds. Needs an NVIDIA GPU, torchvision, JAX and a ./x build; about 3 minutes.
#
#   tests/real_gpu/idle.sh [SECONDS] [ROUNDS]
set -u
cd "$(dirname "$0")/../.." || exit
seconds=${1:-6}
rounds=${2:-3}
sluice=$PWD/build/bin/sluice
export SLUICE_SESSION=idle-$$ XLA_PYTHON_CLIENT_PREALLOCATE=false
train=(python3 tests/real_gpu/training_loop.py "$seconds")
work=$(mktemp -d)
background=()
finish() {
  ((${#background[@]} == 0)) || kill "${background[@]}" 2>/dev/null
  wait
}
trap 'finish; rm -rf "$work"' EXIT
idle() { # NAME PRIORITY PROGRAM: has used the GPU once, and does nothing from then on
  "$sluice" exec --priority "$2" -- python3 -c "$3; open('$work/$1', 'w'); import time; time.sleep(1000)" 2>/dev/null &
  background+=($!)
  for _ in $(seq 600); do [ -e "$work/$1" ] && return; sleep 0.1; done
  echo "idle.sh: $1 is not ready after 60 s" >&2
}
measure() { printf '%-52s %s\n' "$1" "$("${@:2}" 2>/dev/null | tail -1)"; }

for _ in $(seq "$rounds"); do
  measure "without Sluice" "${train[@]}"
  measure "under Sluice, alone" "$sluice" exec --priority 0 -- "${train[@]}"
done
idle critical 1 'import torch; torch.zeros(1).cuda() + 1; torch.cuda.synchronize()'
for _ in $(seq "$rounds"); do
  measure "next to an idle critical program" "$sluice" exec --priority 0 -- "${train[@]}"
done
idle third 0 'import jax; (jax.numpy.ones(8) + 1).block_until_ready()'
for _ in $(seq "$rounds"); do
  measure "next to an idle critical and an idle JAX program" "$sluice" exec --priority 0 -- "${train[@]}"
done
