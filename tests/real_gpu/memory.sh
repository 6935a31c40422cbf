#!/usr/bin/env bash
# Runs the experiments that the memory handover between a trainer and a server rests on, without Sluice:
# R2 refused launches, R3 gradients of dropped micro-batches, R4 memory calls next to a parked stream, R5 a
# bound on the host's run-ahead, R7 graphs over replaced pages, R9 memory that no hook sees. Prints a table;
# memory/README.md explains it. Writes findings.jsonl, table.txt and a log of each experiment. Needs an NVIDIA GPU
# that nothing else uses, g++, cuda.h, and python3 with torch, torchvision and transformers. Takes two to three minutes.
#
#   tests/real_gpu/memory.sh [INDEX OF THE GPU] [R2 R3 R4 R5 R7 R9]           OUT=results/memory
set -u
cd "$(dirname "$0")/../.." || exit
export CUDA_VISIBLE_DEVICES=0
case ${1:-} in
  [0-9]*) CUDA_VISIBLE_DEVICES=$1 && shift ;;
esac
known="R2 R3 R4 R5 R7 R9"
for experiment in "$@"; do
  [[ " $known " == *" $experiment "* ]] && continue
  echo "memory.sh: no experiment '$experiment'; there are $known" >&2
  exit 2
done
wanted=" ${*:-$known} "
sources=$PWD/tests/real_gpu/memory
python=${SLUICE_PYTHON:-python3}
out=${OUT:-results/memory}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit
rm -f "$out"/*.jsonl "$out"/*.log
export CUBLAS_WORKSPACE_CONFIG=:4096:8 PYTHONUNBUFFERED=1
# Both names: PyTorch is renaming the variable.
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True PYTORCH_ALLOC_CONF=expandable_segments:True
failed=0

# build NAME SOURCES AND FLAGS
build() {
  local cuda=${CUDA_HOME:-/usr/local/cuda} name=$1
  shift
  g++ -std=c++20 -O2 -Wall -Wextra -I. -I"$cuda/include" "$@" -o "$out/$name" \
    -L"$cuda/lib64/stubs" -L"$cuda/lib/stubs" -L"$cuda/targets/x86_64-linux/lib/stubs" -L/usr/local/nvidia/lib64 -pthread -ldl \
    >"$out/build-$name.log" 2>&1 || cat "$out/build-$name.log" >&2
}

# run EXPERIMENT NAME SECONDS COMMAND...: its findings are those of $out/NAME.jsonl; a failure is one too.
run() {
  local experiment=$1 name=$2 limit_s=$3
  shift 3
  [[ $wanted == *" $experiment "* ]] || return 0
  echo "memory.sh: $SECONDS s: $name begins" >&2
  timeout -k 2 "$limit_s" "$@" >"$out/$name.jsonl" 2>"$out/$name.log"
  local status=$?
  echo "memory.sh: $SECONDS s: $name ended with $status" >&2
  [ $status = 0 ] && return
  tail -n 4 "$out/$name.log" >&2
  echo "{\"experiment\": \"$experiment\", \"what\": \"$name FAILED\", \"exit\": $status}" >>"$out/$name.jsonl"
  failed=1
}

# The same, with the shim preloaded.
shimmed() {
  local experiment=$1 name=$2 limit_s=$3
  shift 3
  MEMORY_SHIM=$out/libmemory_shim.so run "$experiment" "$name" "$limit_s" \
    env LD_PRELOAD="$out/libmemory_shim.so" "$python" "$@"
}

graphs=tests/real_gpu/graphs
build libmemory_shim.so -fPIC -shared "$sources/shim.cpp" &
build parked_calls "$sources/parked_calls.cpp" $graphs/gpu.cpp $graphs/kernels.cpp -lcuda &
build remap "$sources/remap.cpp" $graphs/gpu.cpp $graphs/kernels.cpp -lcuda &
# The first import reads gigabytes from the disk.
"$python" -c 'import torch, torchvision' &
wait

# One after the other: what is measured in time, and what looks at the memory of the whole GPU.
run R4 R4-parked-calls 50 "$out/parked_calls"
run R9 R9-hidden-memory 50 "$python" "$sources/hidden_memory.py"
run R3 R3-gradients 40 "$python" "$sources/scratch_gradients.py"
shimmed R5 R5-run-ahead 60 "$sources/run_ahead.py"
shimmed R2 R2-resnet50 45 "$sources/refused_training.py" resnet50 --gradients copy

# All at once: what is right or wrong. Their times are those of a shared GPU.
run R7 R7-remap 45 "$out/remap" &
run R7 R7-remap-torch 45 "$python" "$sources/remap_torch.py" &
shimmed R2 R2-graph 45 "$sources/refused_graph.py" &
for job in swin_t encoder encoder-bf16 resnet50-bf16; do
  shimmed R2 "R2-$job" 60 "$sources/refused_training.py" "$job" --steps 6 &
done
shimmed R2 R2-resnet50-cold 45 "$sources/refused_training.py" resnet50 --cold --steps 4 &
shimmed R2 R2-encoder-cold 45 "$sources/refused_training.py" encoder --cold --steps 4 --gradients copy &
shimmed R2 R2-compiled 60 "$sources/refused_training.py" compiled --steps 6 &
wait

cat "$out"/*.jsonl >"$out/findings.all" && mv "$out/findings.all" "$out/findings.jsonl"
"$python" "$sources/table.py" "$out/findings.jsonl" | tee "$out/table.txt"
grep -q FAILED "$out/findings.jsonl" && failed=1
echo "memory.sh: $SECONDS s; findings in $out/findings.jsonl"
exit $failed
