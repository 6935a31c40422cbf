#!/usr/bin/env bash
# The errors of `sluice predict` by protocol, on measured programs: of networks that are held out, of those that choose
# the model (the programs of networks that test are left out then), of every fifth label, and of two networks that
# nothing was chosen with. A line for each: mean and median of the error in %, of all programs, and of those that do
# not spill registers. Needs no GPU and takes minutes.
#
#   tests/real_gpu/predict.sh PACKS AND RECORDS...   (default: those of docs/data/programs for GPUs, after ./x data)
#   DEVICE=h100   SEEDS="0 1 2"   MODELS="gaussian analytic"   OUT=results/predict
#   PARTS="choice test fifth unused": which protocols
set -eu
cd "$(dirname "$0")/../.."
predict=build/libexec/sluice/sluice-predict
device=${DEVICE:-h100}
out=${OUT:-results/predict}
read -ra seeds <<<"${SEEDS:-0 1 2}"
read -ra models <<<"${MODELS:-gaussian analytic}"
parts=" ${PARTS:-choice test fifth unused} "
inputs=("$@")
(($#)) || inputs=(docs/data/programs/cuda-b{1,4,8}.programs docs/data/programs/{h100,h200}.jsonl.xz)
unused=(vgg16 vit)                          # no choice was ever made with these
test=(bert_base mobilenet resnet_18)        # the published choice
choice=(densenet121 squeezenet_v1.1 efficientnet_b0 inception_v3 mobilenet_v3 gpt2 resnet3d_18 resnet_50)

join() { local IFS=-; echo "$*"; }
[ -e "$out/dataset/dataset.cbor" ] || "$predict" make_dataset "${inputs[@]/#/-i}" --out "$out/dataset"

measure() { # NAME MODE
  for model in "${models[@]}"; do
    for seed in "${seeds[@]}"; do
      local run="$out/$1-$model-$seed"
      "$predict" train -i "$out/dataset" --mode "$2" --model "$model" --seed "$seed" --cache_dir "$run" >"$run.txt"
      "$predict" analyze -i "$out/dataset" --cache_dir "$run" >/dev/null
      awk -F, -v name="$1,$model,$seed" '
        FILENAME ~ /metrics/ && FNR == 1 { for (i = 1; i <= NF; i++) column[$i] = i }
        FILENAME ~ /metrics/ { split($0, last) }
        $1 == "spills" && $2 == "no" { mean = 100 * $4; median = 100 * $5 }
        END {
          printf "%s,%.1f,%.1f,%.1f,%.1f,%.2f,%.2f,%.1f\n", name, 100 * last[column["mape"]],
            100 * last[column["median"]], mean, median, last[column["top1"]], last[column["pairs"]],
            last[column["train_s"]]
        }' "$run/metrics.csv" "$run/analysis.csv"
    done
  done
}

echo "protocol,model,seed,mean,median,mean_no_spills,median_no_spills,top1,pairs,train_s"
if [[ $parts == *" choice "* ]]; then
  for net in "${choice[@]}"; do
    measure "choice-$net" "$device:without-$(join "${test[@]}" "${unused[@]}").by_net:test-$net"
  done
fi
if [[ $parts == *" test "* ]]; then
  for net in "${test[@]}"; do measure "test-$net" "$device.by_net:test-$net"; done
fi
[[ $parts != *" fifth "* ]] || measure fifth "$device"
[[ $parts != *" unused "* ]] || measure unused "$device.by_net:test-$(join "${unused[@]}")"
