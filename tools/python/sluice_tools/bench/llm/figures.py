"""The rows of `sluice bench llm`. The latency of a row of the server is its time per token; the time to the first token
and the gaps between tokens have columns of their own, and `instead` puts one of them in its place."""

from sluice_tools.bench.common.numbers import best_effort_row
from sluice_tools.bench.llm.plan import SERVER
from sluice_tools.measure.rows import CRITICAL, KEY
from sluice_tools.measure.statistics import latency_figures

_LATENCY = ("mean_ms", "p50_ms", "p99_ms", "max_ms")
FIELDS = (
    *KEY, "client", "role", "policy", "load", "capacity_per_s",
    # jobs: requests that arrived in the window and got two tokens; latency: mean time between the tokens of each.
    "jobs", "window_s", *_LATENCY,
    # From the arrival to the first token, of all requests that arrived in the window.
    *(f"ttft_{name}" for name in _LATENCY),
    # Between two tokens of a request, of all tokens.
    "gap_p50_ms", "gap_p99_ms",
    # gaps: how many of them were so long, as "7.03:12 7.04:9".
    "gaps",
    # dropped: requests that did not end within six seconds after the window; graphs: CUDA graphs of the server.
    "per_s", "unit", "dropped", "graphs",
    # What the interposer counted in the window.
    "launches", "gated", "captured", "waited", "bypassed", "held_ms", "max_hold_opened", "unknown_launches",
    "longest_us", "ungated_graph_us",
    "target_state", "target_jobs", "target_kept", "limit_ms",
    "gpu", "driver", "torch", "sluice", "commit", "date", "note", "error",
)  # fmt: skip


def server_row(done: dict, target: dict | None, more: dict) -> dict:
    """done: the answer of the client; target: of the server in `sluice status --json`, before and after."""
    window_s = (done["end_ns"] - done["begin_ns"]) / 1e9
    ttft = latency_figures(done["ttft_ms"])
    row = {"client": SERVER, "role": CRITICAL, "window_s": window_s, "dropped": done["dropped"]} | more
    row |= {"per_s": len(done["ttft_ms"]) / window_s, "unit": "requests"}
    row |= {f"ttft_{name}": ttft[name] for name in _LATENCY} | {f"gap_{k}_ms": v for k, v in done["gap_ms"].items()}
    row["gaps"] = " ".join(f"{ms}:{count}" for ms, count in sorted(done["gaps"].items(), key=lambda one: float(one[0])))
    return row | latency_figures(done["tpot_ms"]) | (target or {})


def target_figures(before: dict | None, after: dict | None) -> dict:
    """Of two clients of `sluice status --json`; empty where the client has no target."""
    first, last = ((client or {}).get("target") or {} for client in (before, after))
    if not last:
        return {}
    return {
        "target_state": last["state"],
        "limit_ms": (last["limit_ns"] or 0) / 1e6,
        "target_jobs": last["jobs"] - first.get("jobs", 0),
        "target_kept": last["kept"] - first.get("kept", 0),
    }


def stepping_row(name: str, policy: str, ends_ns: list, begin_ns: int, end_ns: int, before, after) -> dict:
    return best_effort_row(ends_ns, begin_ns, end_ns, name, policy, before, after) | {"unit": "steps"}


def instead(rows: list[dict], what: str) -> list[dict]:
    """The rows with the time to the first token (what: ttft) or the gaps (gap) as latency."""
    return [row | {name: row.get(f"{what}_{name}", "") for name in _LATENCY} for row in rows]
