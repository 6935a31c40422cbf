#!/usr/bin/env bash
# Tests tracing on a real GPU, in about two minutes. Checks that every launch has its execution times,
# in a run that ends by SIGKILL and in one that ends normally. Measures the cost of tracing: runs each
# program three times, alternately without and with tracing. Needs an NVIDIA GPU and a finished ./x
# build. Skips the PyTorch part if python3 has no torchvision.
#
#   tests/real_gpu/trace.sh [FOLDER FOR RESULTS]
set -u
failed=0
cd "$(dirname "$0")/../.." || exit
out=${1:-results/real-gpu-trace}
rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
sluice=$PWD/build/bin/sluice
counts=tests/real_gpu/trace_counts.py
experiment=exp_configs/replay/input_device.json

"$sluice" gpus --gpu real >/dev/null || { echo "trace.sh: no real GPU" >&2; exit 1; }

echo "== the machine"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || exit
date -u +%Y-%m-%d
ls -l build/lib/sluice/libsluice_cupti.so || echo "built without CUPTI: no execution times"

echo "== $experiment, alternately without and with --trace (model: p50 ms, jobs)"
run() {
  "$sluice" run "$experiment" --gpu real --duration 8 --out "$out/$1" "${@:2}" >"$out/$1.txt" 2>&1 ||
    failed=1
  printf '%-10s' "$1"
  awk '/^model_/ { printf "   %s: %s ms, %s jobs", $1, $6, $4 } END { print "" }' "$out/$1.txt"
  grep warning "$out/$1.txt"
}
for round in 1 2 3; do
  run "plain-$round"
  run "traced-$round" --trace
done
python3 $counts "$out/traced-1/trace" || failed=1

python3 -c 'import torchvision' 2>/dev/null || { echo "no torchvision: skipped PyTorch"; exit $failed; }
echo "== unmodified PyTorch, alternately without and with --trace"
for round in 1 2 3; do
  "$sluice" exec --priority 1 -- python3 tests/real_gpu/inference_loop.py 2 || failed=1
  mkdir -p "$out/torch-$round"
  "$sluice" exec --priority 1 --trace "$out/torch-$round" -- \
    python3 tests/real_gpu/inference_loop.py 2 | sed 's/^/traced: /' || failed=1
done
python3 $counts "$out/torch-1" || failed=1
[ $failed = 0 ] && echo "trace.sh: passed"
exit $failed
