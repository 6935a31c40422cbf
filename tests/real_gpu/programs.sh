#!/usr/bin/env bash
# New data for `sluice predict`: packs without programs that spill, half of them random ones of new tasks, half changed
# from the fastest programs of docs/data/programs/h100.jsonl.xz, as a tuner does. All processors make packs, and each
# GPU measures them as they come, first the given ones. Ends after SECONDS (420) with what there is then. Needs
# bin/, lib/ and libexec/ of a ./x build (SLUICE_BUILD=build) and, to make packs, TVM and torch (SLUICE_TVM_PYTHON).
#
#   tests/real_gpu/programs.sh OUT [SECONDS] [PACK...]
# OUT/records.jsonl.xz, the measured packs in OUT/packs.tar.00, .01 (15 MB each; cat OUT/packs.tar.* | tar x), and log.txt.
# JOBS: packs that are made at once (the processors). SEED=200   PER_TASK=8   BATCHES="2 16"   GPUS: how many (all);
# 1 below `sluice exec --gpu sim`. NEW, OLD: networks instead of those below.
set -u
out=${1:?usage: tests/real_gpu/programs.sh OUT [SECONDS] [PACK...]}
seconds=${2:-420}
given=("${@:3}")
here=$(cd "$(dirname "$0")" && pwd)
sluice=${SLUICE_BUILD:-$here/../../build}/bin/sluice
known=$here/../../docs/data/programs/h100.jsonl.xz
gpus=${GPUS:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')}
[ "$gpus" -gt 0 ] || { echo "programs.sh: no GPU" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work"/{making,ready,measured,tried}
left() { echo $((seconds - SECONDS)); }

# The networks that test a predictor are in every batch size, so that their tasks are known and can be held out.
test=resnet-18,bert_base,mobilenet,vgg16,vit
some=squeezenet_v1.1,dcgan,lstm,bert_tiny,mlp,gpt2,resnet3d-18
large=resnet-50,mobilenet_v3,wide_resnet50,resnext50,bert_medium,bert_large,densenet121,inception_v3,efficientnet_b0
new=googlenet,mnasnet0_5,shufflenet_v2_x1_0,regnet_y_400mf,convnext_tiny,swin_t,mobilenet_v3_small,alexnet
new+=,squeezenet1_0,efficientnet_v2_s,regnet_x_800mf,densenet169,mc3_18,efficientnet_b2,s3d,shufflenet_v2_x0_5
new+=,regnet_y_1_6gf,maxvit_t,resnet101
new=${NEW-$new}
old=${OLD-$test,$some,$large}

# NETWORK BATCH KIND of each pack, in turns of the kinds.
plan() {
  local batch
  paste -d '\n' <(
    for network in ${new//,/ }; do echo "$network 1 new"; done
    for batch in ${BATCHES-2 16}; do
      for network in ${old//,/ } ${new//,/ }; do echo "$network $batch new"; done
    done
  ) <(
    for network in ${old//,/ }; do echo "$network 1 tuned"; done
    for network in ${old//,/ }; do echo "$network 8 tuned"; done
    for network in ${old//,/ }; do echo "$network 4 tuned"; done
  ) | grep .
}

make_pack() { # NETWORK BATCH KIND
  local name=$3-$1-b$2 tuned=()
  [ "$3" = new ] || tuned=(--tuned "$known")
  # Several of TVM's libraries look for torch and for a GPU; neither is of use here.
  CUDA_VISIBLE_DEVICES="" TVM_FFI_DISABLE_TORCH_C_DLPACK=1 OMP_NUM_THREADS=1 \
    nice -n 10 timeout -k 5 "$(left)" "$sluice" programs make --models "$1" --batch "$2" --seed "${SEED:-200}" \
    --per-task "${PER_TASK:-8}" --no-features --no-spills "${tuned[@]}" -o "$work/making/$name.programs" \
    >"$work/making/$name.txt" 2>&1 || echo "$name: $(tail -1 "$work/making/$name.txt")" >>"$work/left_out.txt"
  [ ! -e "$work/making/$name.programs" ] || mv "$work/making/$name.programs" "$work/ready"
}

make_packs() {
  local at=0 network batch kind
  while read -r network batch kind; do
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-$(nproc)}" ]; do sleep 0.2; done
    [ "$(left)" -gt 30 ] || break
    make_pack "$network" "$batch" "$kind" &
    at=$((at + 1))
  done < <(plan)
  wait
  echo "$at of $(plan | wc -l) packs were begun; all were made after $SECONDS s"
}

# A pack is claimed by moving it, so each is measured by one GPU.
measure() { # GPU
  local idle=0 pack mine=$work/measured/$1
  mkdir "$mine"
  while [ "$(left)" -gt 15 ]; do
    pack=$(find "$work/ready" -name '*.programs' | head -1)
    if [ -z "$pack" ]; then
      [ ! -e "$work/made" ] || break
      sleep 0.5
      idle=$((idle + 1))
    elif mv "$pack" "$mine" 2>/dev/null; then
      "$sluice" opbench measure "$mine/${pack##*/}" --device "$1" -j $(($(nproc) / gpus)) --limit-s $(($(left) - 8)) \
        -o "$work/$1.jsonl"
    fi
  done
  echo "GPU $1 waited $((idle / 2)) s for packs"
}

{
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
  echo "$gpus GPUs, $(nproc) processors, $seconds s"
} | tee "$out/log.txt"
# Minutes of making would be lost if nothing could be measured.
first=${given[0]:-$here/../../docs/data/programs/tuned-h100.programs}
for ((gpu = 0; gpu < gpus; gpu++)); do
  "$sluice" opbench measure "$first" --per-task 1 --limit-s 2 -j 2 --device "$gpu" -o "$work/tried/$gpu.jsonl" || exit 1
done
echo "each GPU has measured programs after $SECONDS s"
((!${#given[@]})) || cp "${given[@]}" "$work/ready"
{ make_packs >"$work/made.txt"; touch "$work/made"; } &
for ((gpu = 0; gpu < gpus; gpu++)); do measure "$gpu" >"$work/gpu$gpu.txt" 2>&1 & done
wait
cat "$work"/{made,gpu*,left_out}.txt >>"$out/log.txt" 2>/dev/null
cat "$work"/made.txt
grep -h waited "$work"/gpu*.txt
tail -n 3 "$work/left_out.txt" 2>/dev/null
echo "$(cat "$work"/*.jsonl | wc -l) records after $SECONDS s"
cat "$work"/*.jsonl |
  python3 -c 'import lzma, sys; sys.stdout.buffer.write(lzma.compress(sys.stdin.buffer.read()))' >"$out/records.jsonl.xz"
tar c -C "$work/measured" . | split -d -b 15M - "$out/packs.tar."
