#!/usr/bin/env bash
# p50 and p99 of a small ASGI service next to training: alone, without Sluice, with Sluice, and with
# Sluice and the middleware that announces requests at their headers; and the steps of the training.
# Needs an NVIDIA GPU, a finished build, torchvision, starlette and uvicorn; about 3 minutes.
#
#   tests/real_gpu/asgi_service.sh [FOLDER FOR RESULTS]     SECONDS_EACH=20 PYTHON=python3 DEVICE=cuda
#
# DEVICE=cpu MODEL=squeezenet1_1 BATCH=1 SECONDS_EACH=2 tries the script on a machine without a GPU: its figures
# mean nothing there.
set -u
cd "$(dirname "$0")/../.." || exit
out=${1:-results/real-gpu-asgi}
mkdir -p "$out"
out=$(cd "$out" && pwd)
sluice=$PWD/build/bin/sluice
seconds=${SECONDS_EACH:-20}
python=${PYTHON:-python3}
device=${DEVICE:-cuda}
model=${MODEL:-resnet50}
export SLUICE_SESSION=asgi-$$ PYTHONPATH=$PWD/tools/python${PYTHONPATH:+:$PYTHONPATH}
service=("$python" tests/real_gpu/asgi_service.py)
train=("$python" tools/python/examples/train.py --model "$model" --batch "${BATCH:-64}" --seconds 3600 --device "$device")
background=()
finish() {
  ((${#background[@]} == 0)) || kill "${background[@]}" 2>/dev/null
  wait
  background=()
}
trap finish EXIT

filled() { # FILE, within 2 minutes
  for ((i = 0; i < 600; i++)); do
    [ -s "$1" ] && return
    sleep 0.2
  done
  echo "asgi_service.sh: $1 stays empty, see the logs next to it" >&2
  exit 1
}

# measure LABEL SERVER... next-to TRAINING...: no training without words after next-to
measure() {
  local label=$1 server=()
  shift
  while [ "$1" != next-to ]; do server+=("$1") && shift; done
  shift
  "${server[@]}" --device "$device" --model "$model" >"$out/$label.port" 2>"$out/$label.server.log" &
  background+=($!)
  filled "$out/$label.port"
  if (($# > 0)); then
    "$@" >"$out/$label.train.json" 2>"$out/$label.train.log" &
    background+=($!)
    filled "$out/$label.train.log"
    sleep 5
  fi
  "${service[@]}" load "$(cat "$out/$label.port")" --seconds "$seconds" >"$out/$label.json"
  finish
  echo "$label: $(cat "$out/$label.json")"
  (($# == 0)) || echo "$label: training $(cat "$out/$label.train.json")"
}

gated=("$sluice" exec --priority 0 --name train --)
served=("$sluice" exec --priority 1 --name api --)
measure alone "${service[@]}" serve next-to
measure no-sluice "${service[@]}" serve next-to "${train[@]}"
measure sluice "${served[@]}" "${service[@]}" serve next-to "${gated[@]}" "${train[@]}"
measure middleware "${served[@]}" "${service[@]}" serve --middleware next-to "${gated[@]}" "${train[@]}"
measure alone-again "${service[@]}" serve next-to
