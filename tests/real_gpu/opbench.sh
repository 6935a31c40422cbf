#!/usr/bin/env bash
# Compiles and measures packs of programs on all GPUs of this machine, on all SMs and on shares of them,
# then some programs a second time, and some as best effort next to a critical program. Then pairs of
# programs on two streams and under MPS, a sweep over SMs, and the operators of PyTorch models, with which
# a model is split with few measurements and with many. Needs an NVIDIA GPU, NVRTC, and bin/, lib/ and
# libexec/ of a finished ./x build with liblzma-dev (SLUICE_BUILD=build). Leaves out MPS and PyTorch where
# there are none. SECONDS is for all steps, at least 200; each step has a share.
#
#   tests/real_gpu/opbench.sh SECONDS OUT PACK...        SHARES=132,96,64,32,16
# LEAST_US: programs that take less are not paired (30; 1 for the simulated driver, whose kernels take 2 us).
set -u
seconds=${1:?usage: tests/real_gpu/opbench.sh SECONDS OUT PACK...}
out=${2:?no folder for results}
packs=("${@:3}")
build=${SLUICE_BUILD:-$(dirname "$0")/../../build}
sluice=$build/bin/sluice
export SLUICE_SESSION=opbench-$$
mkdir -p "$out"
gpus=$(nvidia-smi -L | grep -c '^GPU')
devices=$(seq -s, 0 $((gpus - 1)))
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee "$out/about.txt"
echo "$gpus GPUs, $(nproc) cores, ${#packs[@]} packs, $seconds s" | tee -a "$out/about.txt"
neighbour=
finish() { [ -z "$neighbour" ] || kill "$neighbour" 2>/dev/null; }
trap finish EXIT

part() { echo $((seconds * $1 / 100)); } # PERCENT of all seconds

measure() { # SECONDS RECORDS ARGS...: says nothing more than the summary and at most 20 lines of errors
  local limit=$1 records=$2
  shift 2
  "$sluice" opbench measure "${packs[@]}" -o "$out/$records" --limit-s "$limit" "$@" \
    2>"$out/$records.err" || echo "opbench measure exited with $?"
  head -20 "$out/$records.err"
}

echo "== on one GPU and all its SMs: programs, compiler and driver work"
measure "$(part 10)" records.jsonl
echo "== on shares: ${SHARES:=132,96,64,32,16}"
measure "$(part 35)" records.jsonl --sm "$SHARES" --device "$devices"
echo "== again: how well labels repeat"
measure "$(part 8)" again.jsonl
echo "== as best effort, next to a critical program: 60 kernels of 12 us every 6 ms"
"$sluice" exec --priority 1 -- "$build/libexec/sluice/sluice-example-spin" \
  --kernels 60 --kernel-us 12 --period-ms 6 --seconds $((seconds / 10 + 15)) >"$out/critical.txt" 2>&1 &
neighbour=$!
sleep 3
"$sluice" exec --priority 0 -- "$sluice" opbench measure "${packs[@]}" -o "$out/beside.jsonl" \
  --limit-s "$(part 10)" 2>"$out/beside.jsonl.err"
head -20 "$out/beside.jsonl.err"
finish
neighbour=

pairs() { # SECONDS ARGS...
  "$sluice" opbench pairs "${packs[@]}" -r "$out/records.jsonl" -o "$out/pairs.jsonl" --least-us "${LEAST_US:-30}" \
    --limit-s "$@" \
    2>"$out/pairs.err" || echo "opbench pairs exited with $?"
  head -5 "$out/pairs.err"
}
echo "== pairs of programs on two streams"
pairs "$(part 10)"
echo "== pairs of programs in two processes, under MPS and time-sliced"
if command -v nvidia-cuda-mps-control >/dev/null; then
  pairs "$(part 7)" --kind mps --pairs 60
else
  echo "no nvidia-cuda-mps-control: skipped MPS"
fi
pairs "$(part 3)" --kind processes --pairs 10
echo "== how many SMs operators need"
"$sluice" opbench sweep sm "${packs[@]}" -o "$out/records.jsonl" --table "$out/sweep.csv" --sm "$SHARES" \
  --limit-s "$(part 7)" >"$out/sweep.txt" 2>"$out/sweep.err" || echo "opbench sweep exited with $?"
tail -3 "$out/sweep.txt"

echo "== operators of PyTorch models, and splits with few measurements and with many"
models=$out/models
if "${SLUICE_PYTHON:-python3}" "$(dirname "$0")/../engine/torch/make_models.py" "$models" >"$out/models.txt" 2>&1; then
  for model in resnet18 bert_tiny; do
    SLUICE_MODELS=$models timeout 60 "$sluice" opbench run --executor torch --modelname "$model" --target cuda \
      --batchsize 1 --out "$out" || echo "opbench run --executor torch exited with $?"
  done
  operators=$out/resnet18-b1/op.csv
  if [ -e "$operators" ]; then
    SLUICE_MODELS=$models "$sluice" split resnet18 -c 4 --device 0 --out "$out" --limit-s "$(part 2)" \
      --measure 8 --operators "$operators" --json >"$out/split-few.json" 2>"$out/split-few.err"
    SLUICE_MODELS=$models "$sluice" split resnet18 -c 4 --device 0 --out "$out" --limit-s "$(part 4)" \
      --json >"$out/split-many.json" 2>"$out/split-many.err"
    head -c 600 "$out"/split-few.json "$out"/split-many.json
  fi
else
  echo "no PyTorch for ${SLUICE_PYTHON:-python3}: skipped its operators"
fi
"$sluice" opbench report "$out/records.jsonl" "$out/pairs.jsonl" --json >"$out/report.json"
"$sluice" predict pairs "$out/pairs.jsonl" "${packs[@]}" | tee "$out/pairs.txt"
python3 "$(dirname "$0")/opbench_summary.py" "$out" | tee "$out/summary.txt"
