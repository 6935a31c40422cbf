#!/usr/bin/env bash
# Runs CUDA graphs of every kind once without Sluice, and once as a best-effort process whose gate a
# critical process closes repeatedly. The results of kernels and copies and the driver's answers must
# be the same bit for bit. Needs an NVIDIA GPU and a finished ./x build. Without an option all parts run:
# --cases: the driver's own calls (graphs/); about 20 seconds.
# --torch: PyTorch (graphs_torch.py); about 90 seconds, mostly compiling, less if Inductor's cache has them.
# --jax:   JAX with XLA's command buffers (graphs_jax.py); --jax-off: without. About 30 seconds each.
# --sim:   the cases on the simulated GPU, which computes nothing, so only the answers are compared.
#
#   tests/real_gpu/graphs.sh [--cases | --torch | --jax | --jax-off | --sim] [FOLDER FOR RESULTS]
#                                                                         POLICY=device:200us ROUNDS=2
set -u
gpu=real
part=
case ${1:-} in
  --sim) gpu=sim part=cases && shift ;;
  --cases | --torch | --jax | --jax-off) part=${1#--} && shift ;;
esac
if [ -z "$part" ]; then
  failed=0
  for part in cases torch jax jax-off; do
    module=${part%-off}
    if [ $part != cases ] && ! python3 -c "import $module" 2>/dev/null; then
      echo "== $part skipped: no such Python package"
      continue
    fi
    echo "==== $part"
    "$0" --$part ${1:+"$1/$part"} || failed=1
  done
  exit $failed
fi
cd "$(dirname "$0")/../.." || exit
out=${1:-results/real-gpu-graphs-$part}
policy=${POLICY:-device:200us}
rounds=${ROUNDS:-2}
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/*.txt "$out"/status.json "$out"/warm
sluice=$PWD/build/bin/sluice
"$sluice" gpus --gpu $gpu >/dev/null || { echo "graphs.sh: no such GPU; --sim uses the simulated one" >&2; exit 1; }
cases=$PWD/build/tests/real_gpu/graphs/graph_cases
rival=$PWD/build/tests/real_gpu/graphs/graph_rival
limit_s=240
case "$part" in
  cases) program=("$cases" --rounds "$rounds") limit_s=60 ;;
  torch) program=(python3 "$PWD/tests/real_gpu/graphs_torch.py") ;;
  jax) program=(python3 "$PWD/tests/real_gpu/graphs_jax.py") ;;
  jax-off) program=(python3 "$PWD/tests/real_gpu/graphs_jax.py" --no-command-buffers) ;;
esac
export SLUICE_SESSION=graphs-$$
failed=0
fail() {
  echo "graphs.sh: $*" >&2
  failed=1
}
# Waits until the file contains the text. Fails if the process ends or the time is up first.
wait_for_text() {
  local tries=$((limit_s * 10))
  until grep -qs "$1" "$2"; do
    kill -0 "$3" 2>/dev/null && ((tries-- > 0)) || return 1
    sleep 0.1
  done
}

echo "== without Sluice"
timeout $limit_s "$sluice" exec --no-intercept --gpu $gpu -- "${program[@]}" \
  >"$out/alone.txt" 2>"$out/alone-errors.txt" ||
  fail "cases fail without Sluice: $(grep FAILED "$out/alone.txt")"
if [ "$gpu" = real ] && [ "$part" = cases ]; then
  nothing=$(grep 'nothing was computed' "$out/alone.txt") && fail "this proves nothing: $nothing"
  "$sluice" exec --no-intercept --gpu $gpu -- "$cases" --rounds "$rounds" --lose --only capture. \
    >"$out/lost.txt"
  same=$(grep -xFf "$out/alone.txt" "$out/lost.txt" | grep -v '^end$\|three_threads') &&
    fail "a missing launch made no difference in: $same"
fi

echo "== under $policy, next to a process of priority 1"
"$sluice" exec --priority 1 --gpu $gpu -- "$rival" "$out/warm" >"$out/rival.txt" &
rival_pid=$!
wait_for_text '^ready, attached' "$out/rival.txt" $rival_pid ||
  fail "the critical process did not start"
SLUICE_LOG=debug "$sluice" exec --priority 0 --policy "$policy" --gpu $gpu -- "${program[@]}" \
  --warm "$out/warm" >"$out/under.txt" 2>"$out/under-errors.txt" &
cases_pid=$!
ended=1
wait_for_text '^end$' "$out/under.txt" $cases_pid || ended=0
"$sluice" status --json >"$out/status.json" || fail "no status"
if [ $ended = 0 ]; then
  fail "the cases did not reach their end; after $(tail -1 "$out/under.txt")"
  kill -9 $cases_pid $rival_pid 2>/dev/null
fi
rm -f "$out/warm"
wait $cases_pid || fail "cases fail under Sluice: $(grep FAILED "$out/under.txt")"
wait $rival_pid || fail "the critical process failed"

python3 - "$out/status.json" "$out/rival.txt" "$cases_pid" <<'END' || fail "gates did not work"
import json, sys
status, rival, pid = json.load(open(sys.argv[1])), open(sys.argv[2]).read(), int(sys.argv[3])
client = next(c for c in status["clients"] if c["pid"] == pid)
total = lambda key: sum(entry[key] for entry in client["coverage"])
for entry in client["coverage"]:
    if entry["launches"] or entry["captured"]:
        print("  %-28s launches %5d  captured %5d  waited %5d  bypassed %s" % (
            entry["entry"], entry["launches"], entry["captured"], entry["waited"],
            {k: v for k, v in entry["bypassed"].items() if v} or "none"))
jobs = int(rival.split("\n")[1].split()[0])
held = client["held_total_ns"]
print("  %s, %s; critical jobs: %d; gate closed for %.1f s" % (
    client["policy"], client["state"], jobs, held / 1e9))
good = total("waited") > 0 and held > 0 and jobs > 100
good = good and client["skipped_waits"] == 0
sys.exit(0 if good else 1)
END
tail -n 8 "$out/alone-errors.txt"
grep -v '^sluice\[[0-9]*\]: [^w]' "$out/under-errors.txt" | tail -n 8
awk -v part="$part" '/ waits in front of / {
    for (i = 1; i <= NF; ++i) {
      if ($i == "graph:") waits += $(i + 1)
      if ($i == "kernels,") { kernels += $(i - 1); unknown += $(i + 1) }
    }
    ++graphs
  }
  END { printf "  %d graphs instantiated: %d waits in front of %d kernels, %d of unknown duration\n",
               graphs, waits, kernels, unknown
        exit !(waits > 0 || part == "jax-off") }' "$out/under-errors.txt" || fail "no waits in graphs"
diff "$out/alone.txt" "$out/under.txt" >"$out/difference.txt" ||
  fail "different without Sluice (<) and with it (>): $(cat "$out/difference.txt")"
echo "$(grep -c ' [0-9a-f]\{16\}' "$out/under.txt") cases, $(grep -c skipped "$out/under.txt") skipped"
sed -n 's/^\([^ ]*\) .*skipped: /  skipped \1: /p' "$out/under.txt"
[ $failed = 0 ] && echo "graphs.sh: no difference"
exit $failed
