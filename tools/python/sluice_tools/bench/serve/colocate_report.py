"""What the part `colocate` says."""

from statistics import fmean

from sluice_tools.bench.serve.colocate_plan import BASELINES, INFER_ONLY, OURS, SLO, TRAIN_ONLY
from sluice_tools.bench.serve.lines import Lines, failures
from sluice_tools.measure import table
from sluice_tools.measure.statistics import ENOUGH_FOR_P99, percentile
from sluice_tools.measure.summary import measured_on

_HEAD = (
    "system",
    "requests",
    "p50 ms",
    "p99 ms",
    "x infer only",
    "in SLO %",
    "samples/s",
    "% of alone",
    "orders",
    "kills",
)
_LEGEND = (
    "Latency: by the client, from the time at which a request was due to its answer. in SLO: share of the requests "
    f"answered within {SLO:g} x the p99 of their model under '{INFER_ONLY}' with the same arrivals (the greatest "
    f"latency, where a model had fewer than {ENOUGH_FOR_P99} requests). samples/s: of finished epochs of training. "
    "orders, kills: what the mode did to training."
)


def slos_ms(rows: list[dict]) -> dict[str, float]:
    """By model, from the rows of infer only."""
    all_ms: dict[str, list[float]] = {}
    for row in rows:
        for model, latencies in row["latency_ms"].items():
            all_ms.setdefault(model, []).extend(latencies)
    return {model: SLO * _p99(latencies) for model, latencies in all_ms.items() if latencies}


def _p99(latencies: list[float]) -> float:
    found = percentile(latencies, 0.99) if len(latencies) >= ENOUGH_FOR_P99 else max(latencies)
    assert found is not None
    return found


def compliance(rows: list[dict], slo_ms: dict[str, float]) -> float | None:
    """Share of the requests that were answered within the SLO of their model."""
    kept = sum(
        latency <= slo_ms.get(model, 0.0)
        for row in rows
        for model, latencies in row["latency_ms"].items()
        for latency in latencies
    )
    sent = sum(row["requests"] for row in rows)
    return kept / sent if sent else None


def _samples(rows: list[dict]) -> float | None:
    values = [row["samples_per_s"] for row in rows if "samples_per_s" in row]
    return fmean(values) if values else None


def published_figures(loads: list[dict[str, list[dict]]]) -> dict[str, tuple[float, float | None, int]]:
    """By baseline: the mean over all loads of our share in SLO minus its (percentage points), and of our samples per
    second over its; None, where it never trained. Third: the loads in which it did not train, left out of the factor.

    loads: of each load, the rows by system.
    """
    found = {}
    for name in BASELINES:
        gains, factors, starved = [], [], 0
        for systems in loads:
            if not (systems.get(OURS) and systems.get(name) and systems.get(INFER_ONLY)):
                continue
            slo_ms = slos_ms(systems[INFER_ONLY])
            ours, other = (compliance(systems[one], slo_ms) or 0.0 for one in (OURS, name))
            gains.append(100 * (ours - other))
            trained, other_trained = (_samples(systems[one]) or 0.0 for one in (OURS, name))
            if other_trained:
                factors.append(trained / other_trained)
            else:
                starved += 1
        if gains:
            found[name] = (fmean(gains), fmean(factors) if factors else None, starved)
    return found


def tables(lines: Lines) -> list[str]:
    """Markdown."""
    if not (rows := lines.rows):
        return failures(lines)
    parts = ["## Inference and training on one GPU", *measured_on(rows), _LEGEND]
    loads: dict[tuple[str, str], dict[str, list[dict]]] = {}
    alone: dict[str, list[dict]] = {}
    for row in rows:
        if row["cell"] == TRAIN_ONLY:
            alone.setdefault(row["mode"], []).append(row)
        else:
            loads.setdefault((row["mode"], row["subject"]), {}).setdefault(row["cell"], []).append(row)
    for (mode, load), systems in loads.items():
        parts.append(f"### {', '.join(filter(None, (load, mode)))}")
        slo_ms = slos_ms(systems.get(INFER_ONLY, []))
        trained_alone = _samples(alone.get(mode, []))
        body = [_line(name, own, systems.get(INFER_ONLY, []), slo_ms, trained_alone) for name, own in systems.items()]
        parts.append(table.as_markdown(_HEAD, body))
    return [*parts, *_figures(list(loads.values())), *failures(lines)]


def _line(name: str, rows: list[dict], alone: list[dict], slo_ms: dict, trained_alone: float | None) -> tuple[str, ...]:
    all_ms = [latency for row in rows for latencies in row["latency_ms"].values() for latency in latencies]
    alone_ms = [latency for row in alone for latencies in row["latency_ms"].values() for latency in latencies]
    p99 = _p99(all_ms) if all_ms else None
    kept, samples = compliance(rows, slo_ms), _samples(rows)
    return (
        name,
        str(sum(row["requests"] for row in rows)),
        _text(percentile(all_ms, 0.5), ".2f"),
        _text(p99, ".2f"),
        _text(p99 / _p99(alone_ms) if p99 and alone_ms else None, ".2f"),
        _text(100 * kept if kept is not None and slo_ms else None, ".1f"),
        _text(samples, ".1f"),
        _text(100 * samples / trained_alone if samples is not None and trained_alone else None, ".0f"),
        *(
            _text(sum(row[key] for row in rows) if all(key in row for row in rows) else None, "d")
            for key in ("orders", "kills")
        ),
    )


def _text(value, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"


def _figures(loads: list[dict[str, list[dict]]]) -> list[str]:
    """The two published figures, each as the mean over the loads and then over what we compare with."""
    found = published_figures(loads)
    if not found:
        return []
    body = []
    for name, (gain, factor, starved) in found.items():
        remark = f"{starved} loads without any training left out" if starved else ""
        body.append((name, f"{gain:+.1f}", _text(factor, ".2f"), remark))
    factors = [factor for _, factor, _ in found.values() if factor is not None]
    gain = fmean(gain for gain, _, _ in found.values())
    said = f"On average {OURS} has {gain:+.1f} percentage points more requests in their SLO"
    if factors:
        said += f" and trains {fmean(factors):.2f} times as fast"
    return [
        f"### {OURS} against the others",
        f"{said}. Each is a mean over the loads, and then over the systems below.",
        table.as_markdown(("against", "in SLO, points", "samples/s, times", ""), body),
    ]


def one_line(measured: list[dict], rows: list[dict]) -> str:
    (row,) = measured
    parts = []
    if "latency_ms" in row:
        all_ms = [latency for latencies in row["latency_ms"].values() for latency in latencies]
        if all_ms:
            parts.append(f"{row['requests']} requests, p50 {percentile(all_ms, 0.5):.2f} ms, p99 {_p99(all_ms):.2f} ms")
        same = [one for one in rows if one["cell"] == INFER_ONLY and one["subject"] == row["subject"]]
        if (kept := compliance([row], slos_ms([one for one in same if one["mode"] == row["mode"]]))) is not None:
            parts.append(f"{100 * kept:.1f} % in SLO")
    if "samples_per_s" in row:
        parts.append(f"training {row['samples_per_s']:.1f} samples/s")
    return "; ".join(parts)
