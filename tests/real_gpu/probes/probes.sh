#!/usr/bin/env bash
# Prints facts about the real driver that the design of the interposer rests on, without Sluice:
# P1 queries of default streams, P2 the cost of lookups, P3 whether a preload sees every change of a
# thread's context. Needs an NVIDIA GPU and a finished ./x build, or its targets sluice_stream_probe
# and sluice_context_watch. P3 needs torch and JAX. About 90 seconds. --sim: P1 and P2, simulated.
#
#   tests/real_gpu/probes/probes.sh [--sim]
set -u
cd "$(dirname "$0")/../../.." || exit
gpu=real
[ "${1:-}" = --sim ] && gpu=sim
probes=$PWD/build/tests/real_gpu/probes
exec 2>&1
[ $gpu = sim ] && export LD_LIBRARY_PATH=$PWD/build/lib/sluice/simgpu SLUICE_SESSION=probes-$$
timeout 60 "$probes/stream_probe" || echo "P1 or P2 failed"
[ $gpu = sim ] && exit
export XLA_PYTHON_CLIENT_PREALLOCATE=false
for program in torch jax; do
  echo "P3 $program:"
  LD_PRELOAD=$probes/libcontext_watch.so timeout 80 python3 tests/real_gpu/probes/contexts_$program.py ||
    echo "P3 $program failed"
done
