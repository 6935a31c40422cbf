"""What the part `training` says."""

from statistics import fmean, median

from sluice_tools.bench.serve.lines import Lines, failures
from sluice_tools.measure import table
from sluice_tools.measure.statistics import percentile
from sluice_tools.measure.summary import measured_on

_BASE = {"server": "server alone", "training": "training alone"}
_HEAD = (
    "condition",
    "client p50 ms",
    "x alone",
    "p99 ms",
    "x alone",
    "server p50 ms",
    "p99 ms",
    "training %",
    "announced %",
    "by us",
    "no answer",
)
_LEGEND = (
    "client: from the time at which a request was due to its answer. server: from the headers to the answer, by its "
    "own records. training: steps per second, of the same program alone without Sluice. announced: share of the "
    "requests of which the gate was told before they began, and how long before (median). bare: neither is under "
    "Sluice."
)


def _steps(rows: list[dict]) -> float | None:
    """Steps per second: the median over the repeats, as all figures of the table."""
    values = [row["steps_per_s"] for row in rows if "steps_per_s" in row]
    return median(values) if values else None


def _line(name: str, rows: list[dict], alone: list[dict], steps_alone: float | None) -> tuple[str, ...]:
    steps = _steps(rows)
    share = f"{100 * steps / steps_alone:.1f}" if steps is not None and steps_alone else "-"
    if "client_ms" not in rows[0]:
        return (name, *["-"] * 6, share, *["-"] * 3)
    target = rows[0]["target_ms"]
    client: list[str] = []
    for figure in ("p50", "p99"):
        ms = median(row["client_ms"][figure] for row in rows)
        base = median(row["client_ms"][figure] for row in alone) if alone else None
        client += [f"{ms:.2f}", f"{ms / base:.2f}" if base else "-"]
    server = [f"{median(percentile(row['server_ms'], part) or 0 for row in rows):.2f}" for part in (0.5, 0.99)]
    told = [us for row in rows for us in row["announced_us"]]
    early = [us for us in told if us > 0]
    return (
        name + (f" {target:.1f} ms" if target else ""),
        *client,
        *server,
        share,
        f"{100 * len(early) / len(told):.0f}",
        f"{median(early):.0f}" if early else "-",
        str(sum(row["sent"] - row["answered"] for row in rows)),
    )


def tables(lines: Lines) -> list[str]:
    """Markdown."""
    if not (rows := lines.rows):
        return failures(lines)
    cells: dict[str, list[dict]] = {}
    for row in rows:
        cells.setdefault(row["cell"], []).append(row)
    alone, steps_alone = cells.get(_BASE["server"], []), _steps(cells.get(_BASE["training"], []))
    parts = ["## Next to training", *measured_on(rows), _LEGEND]
    parts.append(table.as_markdown(_HEAD, [_line(name, own, alone, steps_alone) for name, own in cells.items()]))
    served = [row for row in rows if "execute_ms" in row]
    if served:
        gap_ms, busy = served[0]["gap_ms"], fmean(percentile(row["execute_ms"], 0.5) or 0 for row in alone or served)
        said = f"A request every {gap_ms:g} ms (Poisson); a request alone needs {busy:.2f} ms of the device"
        parts.append(f"{said}, so the server leaves about {100 * max(0.0, 1 - busy / gap_ms):.0f} % to training.")
    return [*parts, *failures(lines)]


def one_line(measured: list[dict], _rows: list[dict]) -> str:
    (row,) = measured
    parts = []
    if client := row.get("client_ms"):
        parts.append(f"client p50 {client['p50']:.2f} ms, p99 {client['p99']:.2f} ms")
    if (steps := row.get("steps_per_s")) is not None:
        parts.append(f"training {steps:.2f} steps/s")
    return "; ".join(parts)
