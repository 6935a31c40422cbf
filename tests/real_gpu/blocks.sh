#!/usr/bin/env bash
# Tests served PyTorch models on a real GPU, in about a minute: each block is a CUDA graph, graphs and
# blocks compute the same bits as the eager model, a preempted batch keeps its state, models are loaded
# and unloaded next to requests, graphs survive the eviction of their weights, and a lost context is reported. ctest runs the first group on the CPU.
# Then measures what a block boundary costs. Needs an NVIDIA GPU, a
# finished ./x build, and the torch of ./x torch.
#
#   tests/real_gpu/blocks.sh [INDEX OF THE GPU]
set -u
failed=0
cd "$(dirname "$0")/../.." || exit
export SLUICE_TEST_GPU=${1:-0}
export SLUICE_SESSION=blocks-$$
python=${SLUICE_PYTHON:-.venv/bin/python}
tests=build/tests/engine/torch
models=$tests/models
out=$(mktemp -d)
neighbour=
# shellcheck disable=SC2317 # the trap calls it
finish() {
  [ -z "$neighbour" ] || kill "$neighbour" 2>/dev/null
  wait
  rm -rf "$out"
}
trap finish EXIT

build/bin/sluice gpus --gpu real >/dev/null || { echo "blocks.sh: no real GPU" >&2; exit 1; }
"$python" tests/engine/torch/make_models.py "$models" || exit

echo "== blocks and preemption"
"$tests/sluice_served_tests" --gtest_filter='Blocks.*:ServedTorch.Detection*:ServedTorch.Model*:ServedTorch.Refuses*' || failed=1

echo "== captures, streams and memory"
"$tests/sluice_captured_tests" --gtest_filter='Captured.*' || failed=1

echo "== the same as a critical client next to training"
build/bin/sluice exec --priority 0 -- "$python" tests/real_gpu/training_loop.py 600 >"$out/training" 2>&1 &
neighbour=$!
for _ in $(seq 120); do
  grep -q '^training' "$out/training" && break
  sleep 0.5
done
grep -q '^training' "$out/training" || { cat "$out/training"; failed=1; }
SLUICE_TEST_ATTACHED=1 build/bin/sluice exec --priority 1 --policy none -- \
  "$tests/sluice_captured_tests" --gtest_filter='Captured.*' || failed=1
kill "$neighbour"
wait "$neighbour" 2>/dev/null
neighbour=

echo "== lost contexts"
for model in ACapturedModel AModelThatRunsUncaptured; do
  "$tests/sluice_captured_tests" --gtest_filter="Lost.ContextOf$model" 2>"$out/lost" || failed=1
  grep -v 'Assertion' "$out/lost" | head -5
done

echo "== the cost of a boundary"
for blocks in 2 4 8; do
  SLUICE_MODELS=$models build/bin/sluice split resnet18 -c "$blocks" --device "$SLUICE_TEST_GPU" --limit-s 5 --out "$out" || failed=1
done
exit $failed
