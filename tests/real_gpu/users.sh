#!/usr/bin/env bash
# A critical program of root next to the training of another user, through the node service: the training
# has priority 0, so it only reads the board. Prints the latencies of the critical program alone, without Sluice
# and with it, and the speed of the training. Then kills the training and the service beside a running job.
# Needs root, an NVIDIA GPU, a finished ./x build, torchvision, and setpriv; about a minute.
#
#   tests/real_gpu/users.sh [FOLDER FOR RESULTS]     SECONDS_EACH=8 OTHER_UID=1000
set -u
cd "$(dirname "$0")/../.." || exit
out=${1:-results/real-gpu-users}
mkdir -p "$out"
out=$(cd "$out" && pwd)
sluice=$PWD/build/bin/sluice
seconds=${SECONDS_EACH:-8}
uid=${OTHER_UID:-1000}
SLUICE_NODE_DIR=$(mktemp -d /run/sluice-users.XXXXXX)
export SLUICE_NODE_DIR
chmod 755 "$SLUICE_NODE_DIR"
critical=("$PWD/build/libexec/sluice/sluice-example-spin" --kernels 60 --kernel-us 12 --period-ms 6 --seconds "$seconds")
other=(setpriv --reuid "$uid" --regid "$uid" --clear-groups env HOME=/tmp "XDG_RUNTIME_DIR=" PYTHONDONTWRITEBYTECODE=1)
train=(python3 tools/python/examples/train.py --batch 64 --seconds 3600)
background=()
finish() {
  ((${#background[@]} == 0)) || kill "${background[@]}" 2>/dev/null
  wait
  background=()
}
trap 'finish; rm -rf "$SLUICE_NODE_DIR"' EXIT
start() { # LOG COMMAND...: in the background, until finish
  "${@:2}" >"$out/$1.log" 2>&1 &
  background+=($!)
}
trains() { # LOG: until the training has begun
  for _ in $(seq 120); do grep -q '^training' "$out/$1.log" && return; sleep 0.5; done
  cat "$out/$1.log"
  exit 1
}

echo "== the critical program alone"
"${critical[@]}" | tail -1

echo "== next to the training of user $uid, without Sluice"
start bare "${other[@]}" "${train[@]}"
trains bare
"${critical[@]}" | tail -1
finish
tail -1 "$out/bare.log"

echo "== through the node service"
start node "$sluice" node
for _ in $(seq 50); do grep -q 'ready' "$out/node.log" && break; sleep 0.1; done
cat "$out/node.log"
start gated "${other[@]}" "$sluice" exec --priority 0 -- "${train[@]}"
trains gated
"$sluice" exec --priority 1 -- "${critical[@]}" >"$out/critical.log" 2>&1 &
job=$!
sleep $((seconds / 2))
"$sluice" status
wait $job
tail -1 "$out/critical.log"
kill "${background[-1]}"
sleep 3
tail -1 "$out/gated.log"

echo "== the training is killed, then the service, while the job runs"
start killed "${other[@]}" "$sluice" exec --priority 0 -- "${train[@]}"
trains killed
"$sluice" exec --priority 1 -- "${critical[@]}" >"$out/survives.log" 2>&1 &
job=$!
sleep $((seconds / 3))
pkill -KILL -U "$uid" -f examples/train.py
sleep $((seconds / 3))
kill -KILL "${background[0]}"
wait $job
echo "exit code $?: $(tail -1 "$out/survives.log")"
