"""What the rows say together: against alone, against the strict ideal, against the goals."""

import statistics

from sluice_tools.bench.pairs.plan import (
    BE_ALONE, BE_ALONE_DEVICE, DEVICE, LOAD, MODES, PAIRS, groups)
from sluice_tools.bench.pairs.records import number

FIGURES = ("p50_ms", "p50_x", "p99_ms", "p99_x", "share", "of_ideal")
MOST_ACTIVE = 0.9
# (critical p50 x, critical p99 x, best effort of the ideal)
GOAL_WITH_NOTICE = (1.02, 1.05, 0.95)
GOAL_WITHOUT = (1.05, 1.25, 0.97)
GOAL_BE_ALONE = 0.98


def speed(row: dict):
    """Best-effort jobs per second with parts of jobs; where the program told none, launches."""
    jobs = number(row, "be_jobs_per_s")
    return jobs if jobs is not None else number(row, "be_launches_per_s")


def _against(row: dict, rows: list, cell: str, arrivals: str, load: str, figure):
    """The same figure of `cell` in the same mode: of the same repeat, else the median of all."""
    same = [other for other in rows if other["pair"] == row["pair"] and
            other["mode"] == row["mode"] and other["cell"] == cell and
            other["arrivals"] == arrivals and other["load"] == load]
    same = [other for other in same if other["repeat"] == row["repeat"]] or same
    values = [value for other in same if (value := figure(other)) is not None]
    return statistics.median(values) if values else None


def _ratio(value, base):
    return value / base if value is not None and base else None


def ideal_share(active_share: float) -> float:
    """What a best-effort program would keep if it had the GPU whenever no critical job is active,
    and never else."""
    return max(0.0, 1.0 - active_share)


def derived(row: dict, rows: list) -> dict:
    """FIGURES of one row; None where there is nothing to compute them from."""
    found = {"p50_ms": number(row, "p50_ms"), "p99_ms": number(row, "p99_ms")}
    for name in ("p50", "p99"):
        alone = _against(row, rows, "alone", row["arrivals"], row["load"],
                         lambda other: number(other, f"{name}_ms"))
        found[f"{name}_x"] = _ratio(found[f"{name}_ms"], alone)
    own = _against(row, rows, BE_ALONE.name, "periodic", str(LOAD), speed)
    found["share"] = _ratio(speed(row), own)
    active = number(row, "active_share")
    found["of_ideal"] = None
    # Where a critical job is nearly always active, the ideal says nothing.
    if active is not None and active <= MOST_ACTIVE and found["share"] is not None:
        found["of_ideal"] = _ratio(found["share"], ideal_share(active))
    return found


def one_line(row: dict, rows: list) -> str:
    """For the progress: what has just been measured."""
    figures, parts = derived(row, rows), []
    if figures["p50_ms"] is not None:
        last = "max" if row["p99_is_max"] == "1" else "p99"
        parts.append(f"n {row['n']}, p50 {figures['p50_ms']:.3f} ms{_times(figures['p50_x'])}, "
                     f"{last} {figures['p99_ms']:.3f} ms{_times(figures['p99_x'])}")
    if figures["share"] is not None:
        text = f"best effort {figures['share']:.1%} of alone"
        if figures["of_ideal"] is not None:
            text += f", {figures['of_ideal']:.1%} of ideal"
        parts.append(text)
    return ", ".join(parts)


def _times(value) -> str:
    return "" if value is None else f" ({value:.2f} x)"


def _order() -> dict:
    """(pair, mode, cell, arrivals, load) -> place, as in the plan; MPS without priorities last."""
    places = {}
    for group in groups(repeats=1):
        for cell in group.cells:
            places.setdefault((group.pair, group.mode, cell.name, cell.arrivals, str(cell.load)),
                              len(places))
    return places


def _name(key: tuple) -> str:
    _, _, cell, arrivals, load = key
    if arrivals == "poisson":
        cell += ", Poisson arrivals"
    return cell if float(load) == LOAD else f"{cell}, load {float(load):.0%}"


def summary(rows: list) -> list:
    """One entry per pair, mode and cell, in order. Figures are lists, a value per repeat."""
    places = _order()
    together = {}
    for row in rows:
        key = tuple(row[name] for name in ("pair", "mode", "cell", "arrivals", "load"))
        together.setdefault(key, []).append(row)
    found = []
    for key in sorted(together, key=lambda key: (PAIRS.index(key[0]), MODES.index(key[1]),
                                                 places.get(key, len(places)))):
        same = together[key]
        figures = [derived(row, rows) for row in same]
        entry = {"pair": key[0], "mode": key[1], "cell": key[2], "name": _name(key),
                 "varied": (key[3], float(key[4])) != ("periodic", LOAD),
                 "repeats": len(same), "n": [int(row["n"]) for row in same if row["n"]],
                 "p99_is_max": any(row["p99_is_max"] == "1" for row in same),
                 "dropped": sum(int(row["dropped"] or 0) for row in same)}
        for name in FIGURES:
            entry[name] = [figure[name] for figure in figures if figure[name] is not None]
        found.append(entry)
    return found


def middle(values: list):
    return statistics.median(values) if values else None


def _meets(entry: dict, goal: tuple):
    """Whether it meets the goal; None if something is not known."""
    values = [middle(entry[name]) for name in ("p50_x", "p99_x", "of_ideal")]
    if None in values:
        return None
    p50, p99, ideal = (round(value, 4) for value in values)
    return p50 <= goal[0] and p99 <= goal[1] and ideal >= goal[2]


def _said(entry: dict) -> str:
    values = [middle(entry[name]) for name in ("p50_x", "p99_x", "of_ideal")]
    p50, p99, ideal = ("-" if value is None else value for value in values)
    if None in values:
        return f"{entry['mode']}: not all measured"
    return f"{entry['mode']} {p50:.3f} x / {p99:.3f} x, {ideal:.1%} of ideal"


def _goal(text: str, entries: list, meets) -> dict:
    """Met if the better one meets it."""
    results = [meets(entry) for entry in entries]
    met = True if True in results else False if False in results else None
    return {"goal": text, "met": met, "seen": "; ".join(_said(entry) for entry in entries)}


def _beaten(entry: dict, others: list) -> list:
    """Names of the cells that have both lower latency and more best-effort work."""
    found = []
    for other in others:
        for last in ("p50_x", "p99_x"):
            mine, its = middle(entry[last]), middle(other[last])
            share, its_share = middle(entry["share"]), middle(other["share"])
            if None not in (mine, its, share, its_share) and its < mine and its_share > share:
                found.append(f"{other['cell']} ({entry['mode']}, {last[:3]})")
    return found


def goals(pair: str, entries: list) -> list:
    """The goals of the pair: text, whether met (None: not measured), what was seen."""
    own = [entry for entry in entries if entry["pair"] == pair and not entry["varied"]]
    device = [entry for entry in own if entry["cell"] in (DEVICE, f"priority+{DEVICE}")]
    notice = [entry for entry in own if entry["cell"].endswith(f"{DEVICE}+notice")]
    found = [
        _goal("with 2 ms notice: p50 <= 1.02 x, p99 <= 1.05 x, best effort >= 95 % of the ideal",
              notice, lambda entry: _meets(entry, GOAL_WITH_NOTICE)),
        _goal("without notice, in the better mode: p50 <= 1.05 x, p99 <= 1.25 x, best effort >= "
              "97 % of the ideal", device, lambda entry: _meets(entry, GOAL_WITHOUT))]
    beaten, compared = [], 0
    for entry in device:
        others = [other for other in own if other["mode"] == entry["mode"] and other["share"] and
                  other["p50_x"] and DEVICE not in other["cell"]]
        compared += len(others)
        beaten += _beaten(entry, others)
    found.append({"goal": f"no other policy is better than {DEVICE} on both axes",
                  "met": not beaten if compared else None,
                  "seen": "better: " + ", ".join(beaten) if beaten else ""})
    alone = [entry for entry in own if entry["cell"] == BE_ALONE_DEVICE.name and entry["share"]]
    shares = {entry["mode"]: middle(entry["share"]) for entry in alone}
    found.append({"goal": f"best effort alone under {DEVICE} <= 2 % slower",
                  "met": min(shares.values()) >= GOAL_BE_ALONE if shares else None,
                  "seen": "; ".join(f"{mode} {1 - share:.1%} slower"
                                    for mode, share in shares.items())})
    return found
