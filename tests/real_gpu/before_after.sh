#!/usr/bin/env bash
# Records the runs of docs/images/before_after.py: a server next to training, once with nothing gated and
# once under the default policy, both traced. Needs an NVIDIA GPU, a finished ./x build and torchvision;
# about 1 minute. --sim: two example programs on the simulated GPU instead, to try the scripts.
#
#   tests/real_gpu/before_after.sh [--sim] FOLDER
set -eu
gpu=real
[ "${1:-}" != --sim ] || { gpu=sim && shift; }
cd "$(dirname "$0")/../.."
out=${1:?usage: tests/real_gpu/before_after.sh [--sim] FOLDER}
sluice=$PWD/build/bin/sluice
if [ $gpu = sim ]; then
  spin=$PWD/build/libexec/sluice/sluice-example-spin
  serve=("$spin" --kernels 60 --kernel-us 12 --period-ms 6 --seconds 1)
  train=("$spin" --kernels 300 --kernel-us 150)
  about='{"server": "60 kernels of 12 us every 6 ms", "training": "kernels of 150 us", "gpu": "SIMULATED GPU"}'
else
  serve=(python3 tests/real_gpu/inference_loop.py 2)
  train=(python3 tests/real_gpu/training_loop.py 600)
  name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
  about='{"server": "ResNet-50 inference, batch 1, a CUDA graph", "training": "ResNet-50 training, batch 64", "gpu": "PyTorch, '$name'"}'
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
printf '%s\n' "$about" >"$out/about.json"
for run in none default; do
  policy=device:200us
  [ $run = default ] || policy=none
  mkdir -p "$out/$run"
  export SLUICE_SESSION=$run-$$ SLUICE_SIM_LOG=$out/$run/gpu.log
  "$sluice" exec --gpu $gpu --priority 0 --policy $policy --trace "$out/$run" -- "${train[@]}" &
  training=$!
  sleep 10
  "$sluice" exec --gpu $gpu --priority 1 --trace "$out/$run" -- "${serve[@]}"
  kill $training
  wait $training || true
done
