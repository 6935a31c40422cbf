#!/usr/bin/env bash
# Runs small programs that Sluice once broke or slowed down, and prints a line with pass or FAIL for each:
# B1 updates of graphs, B2 and B7 two devices (skipped where there is one), B3 cancelled threads, B5 waits
# next to a program that never synchronises (JAX, if python3 has it), B6 critical work without a gap, F2 a
# program outside Sluice in `sluice status`.
# Needs an NVIDIA GPU and a finished ./x build, or its target sluice_review_cases and the programs of
# `sluice exec`. About 2 minutes. --sim: uses the simulated GPU, at SLUICE_SIM_SCALE 1, with two devices.
#
#   tests/real_gpu/review.sh [--sim] [B1 B2 B3 B5 B6 B7 F2]
set -u
cd "$(dirname "$0")/../.." || exit
gpu=real
if [ "${1:-}" = --sim ]; then
  shift
  gpu=sim
  export SLUICE_SIM_SCALE=${SLUICE_SIM_SCALE:-1} SLUICE_SIM_DEVICES=${SLUICE_SIM_DEVICES:-2}
fi
build/bin/sluice gpus --gpu $gpu >/dev/null || { echo "review.sh: no such GPU; --sim uses the simulated one" >&2; exit 1; }
exec python3 tests/real_gpu/review/review.py --root "$PWD" --gpu $gpu -- "$@"
