#!/usr/bin/env bash
# Tests the blocks of PyTorch models on a real GPU, in about a minute: each block is a CUDA graph, the
# blocks compute the same bits as the whole model, and a preempted batch keeps its state. These are the
# tests Blocks.* that ctest runs on the CPU. Then measures what a block boundary costs. Needs an NVIDIA
# GPU, a finished ./x build, and the torch of ./x torch.
#
#   tests/real_gpu/blocks.sh [INDEX OF THE GPU]
set -u
failed=0
cd "$(dirname "$0")/../.." || exit
gpu=${1:-0}
python=${SLUICE_PYTHON:-.venv/bin/python}
models=build/tests/engine/torch/models

build/bin/sluice gpus --gpu real >/dev/null || { echo "blocks.sh: no real GPU" >&2; exit 1; }
"$python" tests/engine/torch/make_models.py "$models" || exit

echo "== blocks and preemption"
SLUICE_TEST_GPU=$gpu build/tests/engine/torch/sluice_served_tests --gtest_filter='Blocks.*' || failed=1

echo "== the cost of a boundary"
out=$(mktemp -d)
for blocks in 2 4 8; do
  SLUICE_MODELS=$models build/bin/sluice split resnet18 -c "$blocks" --device "$gpu" --limit-s 10 --out "$out" || failed=1
done
rm -rf "$out"
exit $failed
