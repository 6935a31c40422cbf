#!/usr/bin/env bash
# Makes new packs with the networks, batch sizes, target, seed and programs of a task of those in docs/data/programs, and
# measures them: the packs for GPUs on all GPUs of this machine, on all SMs and on shares, the pack for CPUs here, with
# one thread and with two. Making needs ./x programs and ./x torch; without them, packs that are in OUT are measured.
# Without a GPU the packs for GPUs are only made. Needs a finished ./x build (SLUICE_BUILD=build). It takes hours:
# an interrupted run goes on where it ended, and SECONDS ends each step early.
#
#   tests/real_gpu/data.sh OUT [SECONDS]        PER_TASK=1 ONLY=lstm,mlp SHARES=132,32
# PER_TASK: at most so many programs of a task. ONLY: these networks instead. SHARES: of the SMs, for batch 1.
set -u
out=${1:?usage: tests/real_gpu/data.sh OUT [SECONDS]}
seconds=${2:-0}
most=${PER_TASK:-16}
sluice=${SLUICE_BUILD:-$(dirname "$0")/../../build}/bin/sluice
mkdir -p "$out"

common=resnet-18,bert_base,mobilenet,squeezenet_v1.1,dcgan,lstm,bert_tiny,mlp # of every pack
gpu=$common,gpt2,resnet3d-18
operators=softmax,layer_norm,pool,conv,dense,matmul
large=resnet-50,mobilenet_v3,wide_resnet50,resnext50,vit,bert_medium,bert_large,roberta
large+=,densenet121,vgg16,inception_v3,efficientnet_b0

make_pack() { # PACK TARGET BATCH PER_TASK NETWORKS
  local per_task=$4
  [ "$per_task" -le "$most" ] || per_task=$most
  timeout "$seconds" "$sluice" programs make --models "${ONLY:-$5}" --batch "$3" --per-task "$per_task" --target "$2" \
    --seed 0 --resume -o "$out/$1.programs"
  case $? in
    0) ;;
    124) echo "$1: ended after $seconds s" ;;
    *) return 1 ;;
  esac
}

measure() { # RECORDS ARGS...
  local records=$1 limit=()
  shift
  [ "$seconds" = 0 ] || limit=(--limit-s "$seconds")
  "$sluice" opbench measure -o "$out/$records" "${limit[@]}" "$@"
}

failed=0
if "$sluice" programs check; then tvm=1; else tvm=0; fi
if [ "$tvm" = 1 ]; then
  # The networks that were there first have up to 12 programs of a task, the others 8.
  make_pack cuda-b1 "cuda -arch=sm_90" 1 12 "$gpu" || failed=1
  make_pack cuda-b1 "cuda -arch=sm_90" 1 8 "$gpu,$operators,$large" || failed=1
  make_pack cuda-b4 "cuda -arch=sm_90" 4 8 "$common" || failed=1
  make_pack cuda-b8 "cuda -arch=sm_90" 8 8 "$gpu" || failed=1
  make_pack llvm-b1 llvm 1 16 "$gpu,$large" || failed=1
  "$sluice" programs check "$out"/*.programs || failed=1
fi
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if [ "$gpus" -gt 0 ]; then
  devices=(--device "$(seq -s, 0 $((gpus - 1)))")
  measure gpu.jsonl "$out/cuda-b1.programs" --sm "${SHARES:-132,96,64,32,16}" "${devices[@]}" || failed=1
  measure gpu.jsonl "$out/cuda-b4.programs" "$out/cuda-b8.programs" "${devices[@]}" || failed=1
else
  echo "no GPU: the packs for GPUs are not measured"
fi
if [ "$tvm" = 1 ]; then
  measure cpu.jsonl "$out/llvm-b1.programs" --threads 1,2 || failed=1
fi
exit "$failed"
