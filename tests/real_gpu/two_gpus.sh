#!/usr/bin/env bash
# One server on two real GPUs, in under 90 s: models on both, the same answers as on one GPU, more requests a second,
# best effort that is held on the GPU of the requests only, memory that an unload frees on both. Needs two GPUs of one
# kind, a finished ./x build with LibTorch, and a Python with torch and torchvision (SLUICE_PYTHON, .venv or python3).
# With KIND `sim`, tries the script itself, without LibTorch.
#
#   tests/real_gpu/two_gpus.sh [OUT] [real | sim]
set -u
cd "$(dirname "$0")/../.." || exit
out=${1:-results/two-gpus} kind=${2:-real}
python=${SLUICE_PYTHON:-$PWD/.venv/bin/python}
[ -x "$(command -v "$python")" ] || python=python3
export SLUICE_PYTHON=$python SLUICE_TEST_PROGRAM=$PWD/build/bin/sluice
mkdir -p "$out/store" && out=$(cd "$out" && pwd) || exit
rm -f "$out/records.jsonl"
if [ "$kind" = sim ]; then
  export SLUICE_SIM_DEVICES=2
else
  nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader | tee "$out/about.txt"
  [ -f "$out/store/resnet50/model.json" ] ||
    PYTHONPATH=tools/python build/bin/sluice models export resnet50 --store "$out/store" >"$out/export.log" 2>&1 ||
    { tail -n 4 "$out/export.log" >&2; exit 1; }
fi
"$python" tests/real_gpu/two_gpus.py "$out" "$kind" 2>&1 | tee "$out/said.txt"
exit "${PIPESTATUS[0]}"
