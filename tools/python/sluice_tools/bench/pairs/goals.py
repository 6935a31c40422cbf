"""The goals of `sluice bench pairs`, and which of them the measured cells meet."""

from statistics import median

from sluice_tools.bench.pairs.plan import ANNOUNCED, BEST_EFFORT_ALONE_DEVICE, DEVICE, PREDICTED
from sluice_tools.measure.summary import Entry, middle

# (critical p50 x, critical p99 x, best effort of the ideal)
WITH_ANNOUNCEMENT = (1.02, 1.05, 0.95)
WITHOUT = (1.05, 1.25, 0.97)
BEST_EFFORT_ALONE = 0.98
_MARKS = {True: "met", False: "**not met**", None: "not measured"}


def _figures(entry: Entry) -> list:
    """Where there are too few jobs for a p99, the slowest job has to meet its goal."""
    return [middle(entry.x["p50"]), middle(entry.x["p99"] or entry.x["max"]), middle(entry.of_ideal)]


def _meets(entry: Entry, goal: tuple) -> bool | None:
    """None if something is not known."""
    values = _figures(entry)
    if None in values:
        return None
    p50, p99, ideal = (round(value, 4) for value in values)
    return p50 <= goal[0] and p99 <= goal[1] and ideal >= goal[2]


def _said(entry: Entry) -> str:
    values = _figures(entry)
    if None in values:
        return f"{entry.mode}: not all measured"
    p50, p99, ideal = values
    return f"{entry.mode} {p50:.3f} x / {p99:.3f} x, {ideal:.1%} of ideal"


def _goal(text: str, entries: list[Entry], goal: tuple) -> dict:
    """Met if the better mode meets it."""
    results = [_meets(entry, goal) for entry in entries]
    met = True if True in results else False if False in results else None
    return {"goal": text, "met": met, "seen": "; ".join(_said(entry) for entry in entries)}


def _beaten(entry: Entry, others: list[Entry]) -> list:
    """Names of the cells that have both lower latency and more best-effort work."""
    found = []
    for other in others:
        share, its_share = middle(entry.share), middle(other.share)
        tail = "p99" if entry.x["p99"] and other.x["p99"] else "max"
        for figure in ("p50", tail):
            mine, its = middle(entry.x[figure]), middle(other.x[figure])
            if mine is None or its is None or share is None or its_share is None:
                continue
            if its < mine and its_share > share:
                found.append(f"{other.cell} ({entry.mode}, {figure})")
    return found


def goals(pair: str, entries: list[Entry]) -> list:
    """The goals of the pair: text, whether met (None: not measured), what was seen."""
    own = [entry for entry in entries if entry.subject == pair]
    device = [entry for entry in own if entry.cell == DEVICE]
    found = [
        _goal(
            "announced 2 ms before: p50 <= 1.02 x, p99 <= 1.05 x, best effort >= 95 % of the ideal",
            [entry for entry in own if entry.cell == ANNOUNCED],
            WITH_ANNOUNCEMENT,
        ),
        _goal(
            "not announced, in the better mode: p50 <= 1.05 x, p99 <= 1.25 x, best effort >= 97 % of the ideal",
            device,
            WITHOUT,
        ),
    ]
    beaten, compared = [], 0
    for entry in device:
        others = [
            other
            for other in own
            if other.mode == entry.mode
            and other.share
            and other.x["p50"]
            and other.cell not in (DEVICE, ANNOUNCED, PREDICTED)
        ]
        compared += len(others)
        beaten += _beaten(entry, others)
    found.append(
        {
            "goal": f"no other policy is better than {DEVICE} on both axes",
            "met": not beaten if compared else None,
            "seen": "better: " + ", ".join(beaten) if beaten else "",
        }
    )
    shares = {
        entry.mode: median(entry.share) for entry in own if entry.cell == BEST_EFFORT_ALONE_DEVICE and entry.share
    }
    found.append(
        {
            "goal": f"best effort alone under {DEVICE} <= 2 % slower",
            "met": min(shares.values()) >= BEST_EFFORT_ALONE if shares else None,
            "seen": "; ".join(f"{mode} {1 - share:.1%} slower" for mode, share in shares.items()),
        }
    )
    return found


def overview(pairs: list, entries: list[Entry]) -> list[str]:
    """A sentence per goal: by how many pairs it is met."""
    results: dict[str, list] = {}
    for pair in pairs:
        for goal in goals(pair, entries):
            results.setdefault(goal["goal"], []).append(goal["met"])
    return [f"{met.count(True)} of {len(met) - met.count(None)} pairs: {goal}" for goal, met in results.items()]


def lines(pair: str, entries: list[Entry]) -> list[str]:
    """The goals as sentences."""
    return [
        f"{_MARKS[goal['met']]}: {goal['goal']}" + (f" ({goal['seen']})" if goal["seen"] else "")
        for goal in goals(pair, entries)
    ]
