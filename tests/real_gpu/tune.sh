#!/usr/bin/env bash
# Tunes networks on a GPU with each tuner, next to TVM's own schedules and to PyTorch (cuDNN and cuBLAS, fp32 without
# TF32). Prints a table. Needs an NVIDIA GPU, NVRTC, bin/, lib/ and libexec/ of a finished ./x build
# (SLUICE_BUILD=build), and TVM (./x programs, or SLUICE_TVM_PYTHON). SECONDS is the limit; what it ends has no row.
#
#   tests/real_gpu/tune.sh SECONDS OUT NETWORK:TRIALS:TUNER,...       resnet-18:128:random,ga,xgb_knob
# GPU: the index of the GPU (0). JOBS: processes of TVM (the processors). SEEDS: 0. COMPILE_S: limit of a program (5).
set -u
seconds=${1:?usage: tests/real_gpu/tune.sh SECONDS OUT NETWORK:TRIALS:TUNER,...}
out=${2:?no folder for results}
here=$(cd "$(dirname "$0")" && pwd)
sluice=${SLUICE_BUILD:-$here/../../build}/bin/sluice
gpu=${GPU:-0}
export PYTHONPATH=$here/../../tools/python${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$out"
for plan in "${@:3}"; do
  IFS=: read -r network trials tuners <<<"$plan"
  source=local
  [[ $network == bert* ]] && source=transformers
  CUDA_VISIBLE_DEVICES=$gpu "${SLUICE_PYTHON:-python3}" "$here/library_time.py" "$network" | tee -a "$out/library.jsonl"
  for tuner in ${tuners//,/ }; do
    for seed in ${SEEDS:-0}; do
      left=$((seconds - SECONDS))
      [ "$left" -gt 20 ] || { echo "tune.sh: no time left for $network $tuner $seed"; continue; }
      begin=$SECONDS
      timeout -k 5 "$left" "$sluice" opbench run --modelsource $source --modelname "$network" --target cuda \
        --tuner "$tuner" --trials "$trials" --seed "$seed" --device "$gpu" -j "${JOBS:-$(nproc)}" \
        --compile-limit-s "${COMPILE_S:-5}" --out "$out/seed-$seed" \
        >"$out/$network-$tuner-$seed.txt" 2>"$out/$network-$tuner-$seed.err"
      echo "$network $tuner, seed $seed: exit $?, $((SECONDS - begin)) s"
      grep -h "} ms" "$out/$network-$tuner-$seed.txt" || tail -2 "$out/$network-$tuner-$seed.err"
    done
  done
done
head -50 "$out"/seed-*/latency.csv
