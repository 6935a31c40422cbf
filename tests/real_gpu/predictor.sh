#!/usr/bin/env bash
# What `sluice predict` needs a GPU for, in SECONDS (360): the counts of 20 kernels next to those of ncu, the tuners
# predict and xgb on two networks with three seeds, and new data. Each part goes as far as it can and says what is
# missing: ncu with the right to read counters, TVM (./x programs, or SLUICE_TVM_PYTHON), NVRTC. The runs of the tuners
# share all GPUs and processors, which they need for minutes each. Needs bin/, lib/ and libexec/ of a finished ./x build
# (SLUICE_BUILD=build), and no network.
#
#   tests/real_gpu/predictor.sh OUT [SECONDS] [PACK...]     OUT: new. PACK: is measured in the time that is left
# NETWORKS="resnet-18 bert_base"   TRIALS=64   TUNERS="predict xgb"   SEEDS="0 1 2"   PARTS="counts tuners data"
# PREDICTOR_DEVICE: of devices.csv (H100). GPUS: how many (all); 1 below `sluice exec --gpu sim`. JOBS: processes of TVM
# of a run (its share of the processors).
set -u
out=${1:?usage: tests/real_gpu/predictor.sh OUT [SECONDS] [PACK...]}
seconds=${2:-360}
packs=("${@:3}")
here=$(cd "$(dirname "$0")" && pwd)
export SLUICE_BUILD=${SLUICE_BUILD:-$(cd "$here/../.." && pwd)/build}
sluice=$SLUICE_BUILD/bin/sluice
python=${SLUICE_PYTHON:-python3}
parts=" ${PARTS:-counts tuners data} "
gpus=${GPUS:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')}
[ "$gpus" -gt 0 ] || { echo "predictor.sh: no GPU" >&2; exit 1; }
mkdir -p "$out"
left() { echo $((seconds - SECONDS)); }
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | tee "$out/about.txt"
echo "$gpus GPUs, $(nproc) processors, $seconds s" | tee -a "$out/about.txt"

# A GPU that is free takes the next run of the plan: runs of predict take several times as long. A run is claimed by
# making its folder.
tuners() {
  local network seed tuner jobs=${JOBS:-$(($(nproc) / gpus + 1))}
  "$sluice" programs check >/dev/null 2>&1 || { echo "tuners: no TVM (./x programs)"; return; }
  for network in ${NETWORKS:-resnet-18 bert_base}; do
    for seed in ${SEEDS:-0 1 2}; do
      for tuner in ${TUNERS:-predict xgb}; do
        echo "$network $seed $tuner"
      done
    done
  done >"$out/plan.txt"
  for ((gpu = 0; gpu < gpus; gpu++)); do
    while read -r network seed tuner; do
      local name=$network-$tuner-$seed begin=$SECONDS
      [ "$(left)" -gt 20 ] || break
      mkdir "$out/$name" 2>/dev/null || continue
      timeout -k 5 "$(left)" "$sluice" opbench run --modelname "$network" --target cuda --tuner "$tuner" \
        --trials "${TRIALS:-64}" --seed "$seed" --device "$gpu" -j "$jobs" --compile-limit-s 5 \
        --predictor-device "${PREDICTOR_DEVICE:-H100}" --out "$out/$name" </dev/null >"$out/$name.txt" 2>"$out/$name.err"
      echo "$name: exit $?, $((SECONDS - begin)) s; $(grep -h '^tuned' "$out/$name.txt" || tail -1 "$out/$name.err")"
    done <"$out/plan.txt" &
  done
  wait
  while read -r network seed tuner; do
    [ -e "$out/$network-$tuner-$seed" ] || echo "no time was left for $network $tuner, seed $seed"
  done <"$out/plan.txt"
}

# Packs of one program each, so that the kernels that ncu sees are those of this program.
counts() {
  command -v ncu >/dev/null || { echo "counts: no ncu"; return; }
  "$python" "$here/predictor_counts.py" pick "$out/one" 20 "$here"/../../docs/data/programs/tuned-h100.programs
  local metrics=smsp__sass_thread_inst_executed_op_ffma_pred_on.sum pack operation
  for operation in ld st; do
    metrics+=,l1tex__t_sectors_pipe_lsu_mem_global_op_$operation.sum
    metrics+=,l1tex__data_pipe_lsu_wavefronts_mem_shared_op_$operation.sum
  done
  for pack in "$out"/one/*.programs; do
    [ "$SECONDS" -lt $((seconds / 3)) ] || break
    timeout 60 ncu --target-processes all --kernel-name regex:main_kernel --launch-count 1 \
      --print-units base --csv --metrics "$metrics" \
      "$sluice" opbench measure "$pack" -j 1 -o "${pack%.programs}.jsonl" >"${pack%.programs}.ncu" 2>&1
  done
  "$python" "$here/predictor_counts.py" compare "$out/one" "$SLUICE_BUILD/libexec/sluice/sluice-predict" |
    tee "$out/counts.txt"
}

data() {
  ((${#packs[@]})) || { echo "data: no pack is given"; return; }
  [ "$(left)" -gt 20 ] || { echo "data: no time is left"; return; }
  "$sluice" opbench measure "${packs[@]}" --device "$(seq -s, 0 $((gpus - 1)))" \
    --limit-s "$(($(left) - 10))" -o "$out/records.jsonl"
}

for part in counts tuners data; do
  [[ $parts != *" $part "* ]] || { echo "== $part ($(left) s left)"; $part; }
done
