#!/usr/bin/env bash
# Training next to the model server on a real GPU: A the same bits as alone; B memory handed over, by size; C the
# same by killing the training; D unmodified PyTorch trainings; E an unmodified server of another make. Prints a table; colocate/README.md explains it. Writes
# findings.jsonl, table.txt, and a log of each part and server into OUT. Every part has a share of SECONDS (480) and
# its own findings, and the next one is tried if it fails. Needs a GPU that nothing else uses, a finished ./x build with
# LibTorch, and a Python with torch and torchvision (SLUICE_PYTHON, .venv or python3). With GPU `sim`, tries the script
# itself.
#
#   tests/real_gpu/colocate.sh [INDEX OF THE GPU | sim] [OUT] [SECONDS] [A B C D E]
# REPEATS: requests for each size in B and C (20). GIB: only these sizes in B, such as 0.5,2.
set -u
cd "$(dirname "$0")/../.." || exit
gpu=${1:-0} out=${2:-results/colocate} seconds=${3:-480}
shift $(($# < 3 ? $# : 3))
known="A B C D E"
for part in "$@"; do
  [[ " $known " == *" $part "* ]] && continue
  echo "colocate.sh: no part '$part'; there are $known" >&2
  exit 2
done
wanted=" ${*:-$known} "
kind=real
[ "$gpu" = sim ] && kind=sim
[ "$gpu" = sim ] || export CUDA_VISIBLE_DEVICES=$gpu
python=${SLUICE_PYTHON:-$PWD/.venv/bin/python}
[ -x "$(command -v "$python")" ] || python=python3
sluice=${SLUICE_PROGRAM:-build/bin/sluice}
sources=$PWD/tests/real_gpu/colocate
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit
rm -rf "$out"/[ABCDE] "$out"/*.jsonl "$out"/*.log
export PYTHONPATH=$PWD/tools/python:$sources${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export CUBLAS_WORKSPACE_CONFIG=:4096:8
export SLUICE_PYTHON=$python
failed=0

# What each part takes of the time, relative to the others.
declare -A share=([A]=24 [B]=38 [C]=15 [D]=13 [E]=10)
left=0
for part in $wanted; do left=$((left + share[$part])); done

# part NAME PROGRAM...: its findings are those of $out/NAME.jsonl; a failure is one too.
part() {
  local name=$1 limit_s
  shift
  [[ $wanted == *" $name "* ]] || return 0
  limit_s=$(((seconds - SECONDS) * share[$name] / left))
  [ "$limit_s" -gt 10 ] || limit_s=10
  left=$((left - share[$name]))
  echo "colocate.sh: $SECONDS s: $name begins, for at most $limit_s s" >&2
  timeout -k 10 $((limit_s + 15)) "$python" "$@" --out "$out/$name" --store "$out/store" --limit-s "$limit_s" --gpu $kind \
    >"$out/$name.jsonl" 2>"$out/$name.log"
  local status=$?
  echo "colocate.sh: $SECONDS s: $name ended with $status" >&2
  [ $status = 0 ] && return
  tail -n 4 "$out/$name.log" >&2
  echo "{\"experiment\": \"$name\", \"what\": \"$name FAILED\", \"exit\": $status}" >>"$out/$name.jsonl"
  failed=1
}

# export_model OPTIONS...: the model that is trained, unless OUT/store has it.
export_model() {
  [ -f "$out/store/resnet50/model_train.pt" ] && return
  "$sluice" models export resnet50 --train "$@" --store "$out/store" >"$out/export.log" 2>&1 && return
  tail -n 4 "$out/export.log" >&2
  failed=1
}

if [ $kind = real ]; then
  export_model
elif [[ $wanted == *" A "* ]]; then
  export_model --size 64 64
fi
part B "$sources/handovers.py" B --repeats "${REPEATS:-20}" ${GIB:+--gib "$GIB"}
mkdir -p "$out/C" && cp "$out"/B/needs-*.json "$out/C/" 2>/dev/null
part A "$sources/bits.py"
part C "$sources/handovers.py" C --repeats "${REPEATS:-20}"
part D "$sources/plain_trainers.py"
part E "$sources/other_server.py"

cat "$out"/*.jsonl >"$out/findings.all" && mv "$out/findings.all" "$out/findings.jsonl"
"$python" "$sources/table.py" "$out/findings.jsonl" | tee "$out/table.txt"
grep -q FAILED "$out/findings.jsonl" && failed=1
echo "colocate.sh: $SECONDS s; findings in $out/findings.jsonl"
exit $failed
