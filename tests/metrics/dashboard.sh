#!/usr/bin/env bash
# Prevents: a dashboard that stays empty, because a metric, a label or a query is wrong. A real
# Prometheus scrapes the controller of a session on the simulated GPU; every query must have data.
# usage: dashboard.sh SOURCE_FOLDER BUILD_FOLDER    exit code 77: skipped
set -euo pipefail
source=$1
build=$2
if ! command -v prometheus >/dev/null || ! command -v curl >/dev/null; then
  echo "SKIPPED: no prometheus or no curl here (apt-get install prometheus curl)"
  exit 77
fi
session=metrics-$$
work=$(mktemp -d)
started=()
cleanup() {
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$work"
}
trap cleanup EXIT
fail() {
  echo "dashboard: $*" >&2
  tail -n 5 "$work"/*.log >&2
  exit 1
}

# A job in the background has no input of its own unless it is named.
start() {
  local log=$1
  shift
  "$@" <&0 >"$work/$log.log" 2>&1 &
  started+=($!)
}
under_sluice() {
  local name=$1
  shift
  start "$name" "$build/bin/sluice" exec --session "$session" --gpu sim --name "$name" "$@"
}

start controller "$build/libexec/sluice/sluice-controller" --session "$session" \
  --metrics 127.0.0.1:0 --metrics "unix:$work/metrics.sock"
for ((i = 0; i < 100; ++i)); do
  grep -qs ' ready: ' "$work/controller.log" && break
  sleep 0.1
done
address=$(grep -o 'http://[^/]*' "$work/controller.log") || fail "no controller"

under_sluice train --priority 0 -- sluice-example-spin --kernels 200
under_sluice ungated --priority 0 --policy none -- sluice-example-spin --kernels 20 --period-ms 20
under_sluice serve --priority 1 --target p99=2x --label team=vision -- \
  sluice-example-spin --kernels 20 --period-ms 10 --mark

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$work/prometheus.yml" <<YAML
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: sluice
    static_configs: [{targets: ["${address#http://}"]}]
YAML
start prometheus prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/data" \
  --web.listen-address="127.0.0.1:$port"
for ((i = 0; i < 200; ++i)); do
  curl -sf "http://127.0.0.1:$port/-/ready" >/dev/null && break
  sleep 0.1
done

python3 "$source/tests/metrics/check_panels.py" "$source/docs/data/grafana-dashboard.json" \
  "http://127.0.0.1:$port" 60 || fail "a query has no data"

# Who may read what.
curl -sf --unix-socket "$work/metrics.sock" http://sluice/metrics | grep -q 'command="' ||
  fail "no command lines on the unix socket"
curl -sf "$address/metrics" | grep 'command="' && fail "command lines on the TCP port"
[[ $(stat -c %a "$work/metrics.sock") == 600 ]] || fail "others can open the unix socket"
echo "every query of the dashboard has data"
