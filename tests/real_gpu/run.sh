#!/usr/bin/env bash
# Runs everything that needs a real driver, in about 7 minutes: the results of lookups, the fault list,
# CUDA graphs, the demo three times, and unmodified PyTorch programs with their coverage. Needs an
# NVIDIA GPU and a finished ./x build. Skips the PyTorch part if python3 has no torchvision.
#
#   tests/real_gpu/run.sh [FOLDER FOR RESULTS]
set -u
failed=0
cd "$(dirname "$0")/../.." || exit
out=${1:-results/real-gpu}
mkdir -p "$out"
out=$(cd "$out" && pwd)
sluice=$PWD/build/bin/sluice
driver=$(LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-} "$sluice" gpus --gpu real --json |
  grep -o '"[^"]*libcuda[^"]*"' | tr -d '"' | head -1)
[ -n "$driver" ] || { echo "run.sh: no real driver; see: sluice gpus --gpu real" >&2; exit 1; }

echo "== the machine"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
date -u +%Y-%m-%d

echo "== lookups on the real driver"
LD_PRELOAD=$PWD/build/lib/sluice/libsluice_intercept.so build/tests/intercept/sluice_lookup_report ||
  failed=1

echo "== the fault list on the real GPU"
(cd build && SLUICE_TEST_LIBCUDA_DIR=$(dirname "$driver") \
  ctest -L 'faults|policies' --no-tests=error --timeout 60 --output-on-failure >"$out/faults.log" 2>&1) ||
  failed=1
grep -E 'tests passed|\(Failed\)|\(Timeout\)' "$out/faults.log"
echo "$(grep -c '\*\*\*Skipped' "$out/faults.log") skipped: they read the simulator's log"
grep -h 'TIMED' build/Testing/Temporary/LastTest.log

echo "== CUDA graphs, with and without Sluice"
tests/real_gpu/graphs.sh "$out/graphs" || failed=1

for round in 1 2 3; do
  echo "== demo, round $round"
  "$sluice" demo --gpu real --out "$out/demo-$round" >"$out/demo-$round.txt" 2>&1 || failed=1
  sed -n '/^GPU 0.*time-sliced/,/^$/p; /^POLICY/,/^$/p' "$out/demo-$round.txt"
done

python3 -c 'import torchvision' 2>/dev/null || { echo "no torchvision: skipped PyTorch"; exit $failed; }
echo "== CUDA graphs of PyTorch, with and without Sluice"
tests/real_gpu/graphs.sh --torch "$out/graphs-torch" || failed=1
echo "== PyTorch alone, without Sluice"
python3 tests/real_gpu/inference_loop.py 4
python3 tests/real_gpu/training_loop.py 6
echo "== PyTorch alone, alternately without and with sluice exec"
for round in 1 2 3; do
  python3 tests/real_gpu/inference_loop.py 2 || failed=1
  "$sluice" exec --priority 1 -- python3 tests/real_gpu/inference_loop.py 2 || failed=1
done
echo "== PyTorch under sluice exec: serving (priority 1) next to training (priority 0)"
for policy in none event:2 device:4; do
  echo "-- $policy"
  "$sluice" exec --priority 0 --policy $policy -- python3 tests/real_gpu/training_loop.py 16 &
  training=$!
  sleep 8
  "$sluice" exec --priority 1 -- python3 tests/real_gpu/inference_loop.py 4 &
  serving=$!
  sleep 9
  "$sluice" status --coverage
  wait $serving || failed=1
  wait $training || failed=1
done
exit $failed
