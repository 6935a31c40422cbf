#!/usr/bin/env bash
# Trains `sluice predict` on measured programs, within a given time: across networks, across devices, next to
# what it is compared with, and with parts of the method taken out. Three seeds. The tables are metrics.csv and
# replay.csv of each folder in OUT; a run that fails is named and the others go on. Runs on a GPU if there is
# one. Needs a ./x build with LibTorch, packs, and records of `sluice opbench measure`.
#
#   tests/real_gpu/predict.sh SECONDS PACKS AND RECORDS...        OUT=results/predict  SEEDS="0 1 2"
#   NETS="resnet-18 bert_base mobilenet": networks that are held out in turn  SOURCE=H200: the device to learn from
#   CONFIG=gpu: config of the transformer   TASKS=30: tasks of another device to tune with
#   PARTS="networks devices ablations published": what runs, in this order
set -u
usage() { echo "predict.sh: usage: tests/real_gpu/predict.sh SECONDS PACKS AND RECORDS..." >&2; exit 2; }
if [[ ! ${1:-} =~ ^[0-9]+$ ]] || (($# < 2)); then usage; fi
budget_s=$1
shift
inputs=()
for input in "$@"; do
  [ -e "$input" ] || { echo "predict.sh: there is no $input" >&2; exit 2; }
  inputs+=(-i "$(realpath "$input")")
done
cd "$(dirname "$0")/../.." || exit
predict=${PREDICT:-$PWD/build/libexec/sluice/sluice-predict}
out=${OUT:-results/predict}
source=${SOURCE:-H200}
tasks=${TASKS:-30}
config=${CONFIG:-gpu}
read -ra seeds <<<"${SEEDS:-0 1 2}"
read -ra nets <<<"${NETS:-resnet-18 bert_base mobilenet}"
parts=" ${PARTS:-networks devices ablations published} "
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit
failed=0

"$predict" make_dataset "${inputs[@]}" --out "$out/dataset" | tee "$out/dataset.txt"
[ -s "$out/dataset/dataset.pt" ] || exit 1
mapfile -t devices < <(grep -oE '[^ ]+ \([0-9]+\)' "$out/dataset.txt" | cut -d' ' -f1 | grep -vx "$source")

# The runs, one a line: FOLDER SEED ARGUMENTS. Each prefix of the list is useful: all parts with one seed first.
# Names of networks are written with _ in a mode.
plan=()
for seed in "${seeds[@]}"; do
  if [[ $parts == *" networks "* ]]; then
    for net in "${nets[@]}"; do
      mode=$source.by_net:test-${net//-/_}
      plan+=("networks/$net $seed --mode $mode -c $config --model transformer")
      plan+=("networks/$net $seed --mode $mode --model xgboost,roofline,mean")
      plan+=("networks/$net $seed --mode $mode -c $config --model mlp,lstm")
    done
  fi
  if [[ $parts == *" devices "* ]]; then
    for device in "${devices[@]}"; do
      mode=by_device:train-$source,test-$device
      for sampling in kmeans random; do
        plan+=("devices/$device $seed --mode $mode -c $config --model transformer --finetune_tasks $tasks --sampling $sampling --set cmd=1")
      done
      plan+=("devices/$device $seed --mode $mode --model xgboost,copied,scaling,roofline --finetune_tasks $tasks")
      plan+=("devices/$device $seed --mode $mode -c $config --model transformer --finetune_tasks $tasks --scratch")
    done
  fi
  if [[ $parts == *" ablations "* ]]; then
    mode=$source.by_net:test-${nets[0]//-/_}
    for setting in positions=true positions=false labels=log labels=none mape=0 mse=0 cmd=1; do
      plan+=("ablations $seed --mode $mode -c $config --model transformer --set $setting")
    done
  fi
  if [[ $parts == *" published "* ]]; then
    plan+=("published $seed --mode $source.by_net:test-${nets[0]//-/_} -c search_trial_1575 --model transformer")
  fi
done

number=0
for line in "${plan[@]}"; do
  number=$((number + 1))
  left_s=$((budget_s - SECONDS))
  if ((left_s < 5)); then
    echo "predict.sh: out of time: $((${#plan[@]} - number + 1)) of ${#plan[@]} runs left out" >&2
    failed=1
    break
  fi
  read -ra words <<<"$line"
  folder=$out/${words[0]}
  # What is left, divided among the trainings that are left; mlp,lstm are two.
  limit_s=$((left_s * 8 / 10 / (${#plan[@]} - number + 1)))
  ((limit_s > 1)) || limit_s=1
  mkdir -p "$folder"
  echo "predict.sh: $SECONDS s: $number/${#plan[@]}: ${words[*]}" >&2
  "$predict" train -i "$out/dataset" --cache_dir "$folder/seed${words[1]}-$number" --out "$folder/seed${words[1]}-$number" \
    --seed "${words[1]}" --limit-s "$limit_s" "${words[@]:2}" 2>"$folder/errors.log" || {
    sed "s|^|predict.sh: ${words[0]}: |" "$folder/errors.log" >&2
    failed=1
    continue
  }
  metrics=$folder/seed${words[1]}-$number/metrics.csv
  [ -s "$folder/metrics.csv" ] || head -n 1 "$metrics" >"$folder/metrics.csv"
  tail -n +2 "$metrics" >>"$folder/metrics.csv"
  # The networks end to end, by the predictor that has not seen them.
  if [[ ${words[0]} == networks/* && -s $folder/seed${words[1]}-$number/predictor.pt ]]; then
    "$predict" replay -i "$out/dataset" --cache_dir "$folder/seed${words[1]}-$number" \
      --networks "${words[0]#networks/}" >>"$folder/replay.txt" 2>>"$folder/errors.log" || failed=1
  fi
done
# Predictors of 40 MB each are not results.
find "$out" -name predictor.pt -size +1M -delete
exit $failed
