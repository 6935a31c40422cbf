"""What the part `colocate` says."""

from dataclasses import dataclass
from statistics import fmean

from sluice_tools.bench.serve.colocate_plan import BASELINES, INFER_ONLY, OURS, SLO, TRAIN_ONLY, kind_of
from sluice_tools.bench.serve.lines import Lines, failures
from sluice_tools.measure import table
from sluice_tools.measure.statistics import ENOUGH_FOR_P99, percentile
from sluice_tools.measure.summary import measured_on

# By the authors of the published server, against their baselines on their machine.
PUBLISHED = "+57.0 (up to 97.0) and 2.2 times (up to 13.7)"
_HEAD = (
    "system",
    "requests",
    "p50 ms",
    "p99 ms",
    "x infer only",
    "in SLO %",
    "samples/s",
    "% of alone",
    "% of the rest",
    "micro-batch",
    "orders",
    "kills",
    "loads",
    "handovers",
)
_LEGEND = (
    "Latency: by the client, from the time at which a request was due to its answer. in SLO: share of the requests "
    f"answered within {SLO:g} x the p99 of their kind of model under '{INFER_ONLY}' with the same arrivals (the "
    f"greatest latency, where a kind had fewer than {ENOUGH_FOR_P99} requests). samples/s: of finished epochs of "
    "training, whose optimizer steps have the same batch in all systems. the rest: training alone, less the share of "
    "the GPU's time that the answered requests need alone. micro-batch: the last one. orders, kills: "
    "what the mode did to training. loads: models whose weights came back. handovers: of memory, from training to "
    "inference. normal, MPS and park hand no memory over: their micro-batch is chosen so that training leaves what "
    "all models need, or half of the pool if they need more; the static partitions leave their share."
)


def slos_ms(rows: list[dict]) -> dict[str, float]:
    """By kind of model, from the rows of infer only: a single model has few requests."""
    all_ms: dict[str, list[float]] = {}
    for row in rows:
        for model, latencies in row["latency_ms"].items():
            all_ms.setdefault(kind_of(model), []).extend(latencies)
    return {kind: SLO * _p99(latencies) for kind, latencies in all_ms.items() if latencies}


def _p99(latencies: list[float]) -> float:
    found = percentile(latencies, 0.99) if len(latencies) >= ENOUGH_FOR_P99 else max(latencies)
    assert found is not None
    return found


def compliance(rows: list[dict], slo_ms: dict[str, float]) -> float | None:
    """Share of the requests that were answered within the SLO of their model."""
    kept = sum(
        latency <= slo_ms.get(kind_of(model), 0.0)
        for row in rows
        for model, latencies in row["latency_ms"].items()
        for latency in latencies
    )
    sent = sum(row["requests"] for row in rows)
    return kept / sent if sent else None


def _samples(rows: list[dict]) -> float | None:
    values = [row["samples_per_s"] for row in rows if "samples_per_s" in row]
    return fmean(values) if values else None


def busy_share(rows: list[dict]) -> float | None:
    """Share of the GPU's time that the answered requests need when nothing else runs."""
    seconds = sum(row["seconds"] for row in rows if row.get("limits_ms"))
    if not seconds:
        return None
    answered = ((row["limits_ms"][model], len(ms)) for row in rows for model, ms in row["latency_ms"].items())
    return sum(limit_ms * count for limit_ms, count in answered) / 1e3 / seconds


@dataclass
class Against:
    """Us against one baseline. gains: our share in SLO minus its, in percentage points, of each load. factors: our
    samples per second over its, of each load in which it trained; starved: the number of the others."""

    gains: list[float]
    factors: list[float]
    starved: int


def published_figures(loads: list[dict[str, list[dict]]]) -> dict[str, Against]:
    """By baseline. loads: of each load, the rows by system."""
    found = {}
    for name in BASELINES:
        one = Against([], [], 0)
        for systems in loads:
            if not (systems.get(OURS) and systems.get(name) and systems.get(INFER_ONLY)):
                continue
            slo_ms = slos_ms(systems[INFER_ONLY])
            ours, other = (compliance(systems[which], slo_ms) or 0.0 for which in (OURS, name))
            one.gains.append(100 * (ours - other))
            trained, other_trained = (_samples(systems[which]) or 0.0 for which in (OURS, name))
            if other_trained:
                one.factors.append(trained / other_trained)
            else:
                one.starved += 1
        if one.gains:
            found[name] = one
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
    of_alone = 100 * samples / trained_alone if samples is not None and trained_alone else None
    busy = busy_share(rows)
    return (
        name,
        str(sum(row["requests"] for row in rows)),
        _text(percentile(all_ms, 0.5), ".2f"),
        _text(p99, ".2f"),
        _text(p99 / _p99(alone_ms) if p99 and alone_ms else None, ".2f"),
        _text(100 * kept if kept is not None and slo_ms else None, ".1f"),
        _text(samples, ".1f"),
        _text(of_alone, ".0f"),
        _text(of_alone / (1 - busy) if of_alone is not None and busy is not None and busy < 1 else None, ".0f"),
        _text(rows[-1].get("micro_batch") if rows else None, "d"),
        *(
            _text(sum(row[key] for row in rows) if all(key in row for row in rows) else None, "d")
            for key in ("orders", "kills", "loads", "handovers")
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
    for name, one in found.items():
        remark = f"{one.starved} loads without any training left out" if one.starved else ""
        factor = _text(fmean(one.factors) if one.factors else None, ".2f")
        body.append((name, f"{fmean(one.gains):+.1f}", f"{max(one.gains):+.1f}", factor, remark))
    factors = [one.factors for one in found.values() if one.factors]
    gains = [one.gains for one in found.values()]
    said = f"On average {OURS} has {fmean(map(fmean, gains)):+.1f} percentage points more requests in their SLO (up to "
    said += f"{max(map(max, gains)):+.1f})"
    if factors:
        said += f" and trains {fmean(map(fmean, factors)):.2f} times as fast (up to {max(map(max, factors)):.2f})"
    return [
        f"### {OURS} against the others",
        f"{said}. Each is a mean over the loads, and then over the systems below. Published: {PUBLISHED}.",
        table.as_markdown(("against", "in SLO, points", "at most", "samples/s, times", ""), body),
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
