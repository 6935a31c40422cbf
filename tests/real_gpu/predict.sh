#!/usr/bin/env bash
# Trains `sluice predict` on measured programs, within a given time: across networks, across shares of a GPU or
# other devices, next to what it is compared with, and with parts of the method taken out. Each run has a folder in
# OUT; tests/real_gpu/predict_summary.py makes the tables of all of them. A run that fails is named and the others go
# on. Runs on a GPU if there is one. Needs a ./x build with LibTorch, packs, and records of `sluice opbench measure`.
#
#   tests/real_gpu/predict.sh SECONDS PACKS AND RECORDS...        OUT=results/predict  SEEDS="0 1 2"
#   NETS="resnet-18 bert_base mobilenet": networks that are held out in turn  SOURCE=H200: the device to learn from
#   MODELS="transformer mlp lstm xgboost ratio roofline copied scaling mean": what is trained
#   DEVICES="H200@32 cpu@2": the devices to test on; all but SOURCE if it is not set
#   JOBS=1: trainings at once. More than one share a GPU through MPS, if it is there
#   RUN_S=25: seconds of a training   CONFIG=gpu: of the networks   TASKS=30: tasks of another device to tune with
#   PARTS="networks devices ablations sampling published": what runs, in this order for each seed; the last three
#   after all seeds of the first two
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
libexec=${LIBEXEC:-$PWD/build/libexec/sluice}
out=${OUT:-results/predict}
source=${SOURCE:-H200}
tasks=${TASKS:-30}
config=${CONFIG:-gpu}
run_s=${RUN_S:-25}
at_once=${JOBS:-1}
read -ra seeds <<<"${SEEDS:-0 1 2}"
read -ra nets <<<"${NETS:-resnet-18 bert_base mobilenet}"
models=" ${MODELS:-transformer mlp lstm xgboost ratio roofline copied scaling mean} "
parts=" ${PARTS:-networks devices ablations sampling published} "
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit

"$libexec/sluice-predict" make_dataset "${inputs[@]}" --out "$out/dataset" | tee "$out/dataset.txt"
[ -s "$out/dataset/dataset.pt" ] || exit 1
read -ra devices <<<"${DEVICES:-}"
[ -n "${DEVICES:-}" ] || mapfile -t devices < <(grep -oE '[^ ]+ \([0-9]+\)' "$out/dataset.txt" | cut -d' ' -f1 | grep -vx "$source")

some() { # MODEL...: those of them that are wanted, with commas
  local wanted=
  for model in "$@"; do [[ $models != *" $model "* ]] || wanted+=,$model; done
  echo "${wanted#,}"
}

plan=() # the runs, one a line: NAME SEED ARGUMENTS; every prefix of the list is useful
add() { # NAME SEED MODELS ARGUMENTS...: nothing if none of the models is wanted
  [ -z "$3" ] || plan+=("$1 $2 --model $3 ${*:4}")
}
across_networks() { # SEED; names of networks are written with _ in a mode
  for model in transformer mlp lstm; do
    for net in "${nets[@]}"; do
      add "$net" "$1" "$(some $model)" --mode "$source.by_net:test-${net//-/_}" -c "$config"
    done
  done
  for net in "${nets[@]}"; do
    add "$net" "$1" "$(some xgboost roofline mean)" --mode "$source.by_net:test-${net//-/_}"
  done
}
across_devices() { # SEED SAMPLING...
  for sampling in "${@:2}"; do
    for device in "${devices[@]}"; do
      few="--mode by_device:train-$source,test-$device --finetune_tasks $tasks"
      case $sampling in
        scratch) add "$device" "$1" "$(some transformer)" "$few" -c "$config" --scratch ;;
        *)
          add "$device" "$1" "$(some transformer)" "$few" -c "$config" --sampling "$sampling" --set cmd=1
          add "$device" "$1" "$(some xgboost ratio copied scaling roofline)" "$few" --sampling "$sampling"
          ;;
      esac
    done
  done
}
held_out=$source.by_net:test-${nets[0]//-/_}
for seed in "${seeds[@]}"; do
  [[ $parts != *" networks "* ]] || across_networks "$seed"
  [[ $parts != *" devices "* ]] || across_devices "$seed" kmeans
done
for seed in "${seeds[@]}"; do
  if [[ $parts == *" ablations "* ]]; then
    for setting in positions=true labels=log labels=none mape=0 mse=0 cmd=1; do
      add ablation "$seed" "$(some transformer)" --mode "$held_out" -c "$config" --set "$setting"
    done
  fi
  [[ $parts != *" sampling "* ]] || across_devices "$seed" random scratch
  [[ $parts != *" published "* ]] ||
    add published "$seed" "$(some transformer)" --mode "$held_out" -c search_trial_1575
done

train() { # NUMBER LIMIT NAME SEED ARGUMENTS...
  local folder
  folder=$out/$(printf '%03d' "$1")-$3-seed$4
  # Training on one device and tuning with another are two trainings.
  local limit_s=$2
  [[ " $* " != *" --finetune_tasks "* || " $* " == *" --scratch "* ]] || limit_s=$((($2 + 1) / 2))
  mkdir -p "$folder"
  if ! "$libexec/sluice-predict" train -i "$out/dataset" --cache_dir "$folder" --seed "$4" --limit-s "$limit_s" \
    "${@:5}" >"$folder/output.txt" 2>&1; then
    sed "s|^|predict.sh: ${folder##*/}: |" "$folder/output.txt" | tail -3 >&2
    touch "$out/failed"
  elif [[ " ${nets[*]} " == *" $3 "* && -s $folder/predictor.pt ]]; then
    # The network end to end, by the predictor that has not seen it.
    "$libexec/sluice-predict" replay -i "$out/dataset" --cache_dir "$folder" --device cpu --networks "$3" \
      >"$folder/replay.txt" 2>&1 || touch "$out/failed"
  fi
  rm -f "$folder/predictor.pt" # 40 MB each, and no result
}

# One MPS daemon for all, until the trainings have ended: without it they take turns on the GPU.
if ((at_once > 1)) && command -v nvidia-cuda-mps-control >/dev/null; then
  exec {mps}> >("$libexec/sluice-mps" --log "$out/mps" >"$out/mps.env" 2>"$out/mps.txt")
  for _ in {1..100}; do ! grep -qx '' "$out/mps.env" || break; sleep 0.1; done
  while read -r variable; do [ -z "$variable" ] || export "${variable?}"; done <"$out/mps.env"
  [ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ] || echo "predict.sh: no MPS: $(tail -1 "$out/mps.txt")" >&2
fi
rm -f "$out/failed"
number=0
trainings=()
for line in "${plan[@]}"; do
  while (($(jobs -rp | wc -l) >= at_once)); do wait -n; done
  left_s=$((budget_s - SECONDS))
  if ((left_s < run_s / 2 + 5)); then
    echo "predict.sh: out of time: $((${#plan[@]} - number)) of ${#plan[@]} runs left out" >&2
    touch "$out/failed"
    break
  fi
  number=$((number + 1))
  read -ra words <<<"$line"
  echo "predict.sh: $SECONDS s: $number/${#plan[@]}: $line" >&2
  train "$number" "$((left_s - 5 < run_s ? left_s - 5 : run_s))" "${words[@]}" &
  trainings+=($!)
done
wait "${trainings[@]}"
[ -z "${mps:-}" ] || exec {mps}>&-
[ ! -e "$out/failed" ]
