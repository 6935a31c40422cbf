"""Evaluates every query of a Grafana dashboard through the HTTP API of a Prometheus.

usage: check_panels.py DASHBOARD.json PROMETHEUS_URL SECONDS

Prints a line for each query. Exit code 1 if a query has no data after SECONDS.
"""

import json
import math
import sys
import time
import urllib.parse
import urllib.request

RATE_INTERVAL = "10s"  # what Grafana would put in, for a scrape interval of some seconds


def queries(path: str) -> list[tuple[str, str]]:
    """Returns the title and the expression of each query."""
    with open(path) as file:
        panels = json.load(file)["panels"]
    return [(p["title"], t["expr"]) for p in panels for t in p["targets"]]


def values(server: str, expression: str) -> list[tuple[dict, float]]:
    """Returns the series that have a number now, with their labels."""
    expression = expression.replace("$__rate_interval", RATE_INTERVAL)
    url = f"{server}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(url, timeout=10) as answer:
        result = json.load(answer)["data"]["result"]
    found = [(series["metric"], float(series["value"][1])) for series in result]
    return [(labels, value) for labels, value in found if math.isfinite(value)]


def main() -> int:
    dashboard, server, seconds = sys.argv[1:]
    deadline = time.monotonic() + float(seconds)
    empty = queries(dashboard)
    while empty and time.monotonic() < deadline:
        time.sleep(1)
        still_empty = []
        for title, expression in empty:
            found = values(server, expression)
            if not found:
                still_empty.append((title, expression))
                continue
            shown = ", ".join(f"{' '.join(labels.values())}: {v:.3g}" for labels, v in found)
            print(f"{title}: {len(found)} series: {shown}")
        empty = still_empty
    for title, expression in empty:
        print(f"{title}: NO DATA: {expression}", file=sys.stderr)
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
