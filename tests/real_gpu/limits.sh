#!/usr/bin/env bash
# Slices where the kernel or MPS refuses them, slices of another user, and limits of memory, on a real GPU.
# Prints the latencies of a critical program with 4 kernels of 50 us every 8 ms next to kernels of 5 ms, and what
# `sluice status` says of both. Needs root, an NVIDIA GPU, a finished ./x build, PyTorch and setpriv; about a minute.
#
#   tests/real_gpu/limits.sh
set -u
cd "$(dirname "$0")/../.." || exit
sluice=$PWD/build/bin/sluice
spin=$PWD/build/libexec/sluice/sluice-example-spin
export SLUICE_SESSION=limits-$$
other=(setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/tmp XDG_RUNTIME_DIR=)
pair() { # WHAT, then what the best-effort program is run by
  echo "== $1"
  shift
  "$@" "$sluice" exec --priority 0 --name long -- "$spin" --kernels 8 --kernel-us 5000 --seconds 9 >/dev/null &
  sleep 2
  "${as[@]}" "$sluice" exec --priority 1 --name short -- "$spin" --kernels 4 --kernel-us 50 --period-ms 8 --seconds 6 \
    >"$log" &
  local critical=$!
  sleep 4
  "${as[@]}" "$sluice" status --json | python3 -c '
import json, sys
for client in json.load(sys.stdin)["clients"]:
    print(client["name"], client["slice"])'
  wait $critical
  tail -1 "$log"
  wait
}
log=$(mktemp)
chmod 666 "$log"
trap 'rm -f "$log"' EXIT
as=()
pair "as root"
pair "the kernel refuses the control" tests/real_gpu/refuse_control.py
as=("${other[@]}")
pair "as user 65534" "${as[@]}"
"${as[@]}" "$sluice" doctor --slices 2>&1 | grep -i slice
as=()

echo "== under MPS"
mps=$(mktemp -d)
coproc daemon { sleep 20 | "$sluice" mps --log "$mps"; }
while read -r line <&"${daemon[0]}" && [ -n "$line" ]; do export "${line?}"; done
pair "under MPS"
wait
for line in CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY; do unset $line; done
rm -rf "$mps"

echo "== a limit of 4 GiB"
"$sluice" exec --priority 0 --memory 4GiB -- python3 -c '
import torch
free, total = torch.cuda.mem_get_info()
print(f"mem_get_info: free {free / 2**30:.2f} of {total / 2**30:.2f} GiB, device {torch.cuda.get_device_properties(0).total_memory / 2**30:.2f} GiB")
held = []
try:
    while True:
        held.append(torch.empty(2**28, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError as error:
    print(f"out of memory after {len(held) / 4:.2f} GiB:", str(error).split(". ")[0])
held.clear()
torch.cuda.empty_cache()
x = torch.ones(2**20, device="cuda")
print("goes on:", float(x.sum()))
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = x * 2
graph.replay()
print("a graph:", float(y.sum()))'
"$sluice" exec --priority 0 --memory 4GiB -- env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python3 -c '
import torch
try:
    torch.empty(2**33, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError as error:
    print("expandable segments:", str(error).split(". ")[0])'
