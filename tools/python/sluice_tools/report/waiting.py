"""What a job was waiting for: its time cut into pieces with one cause each, and said in words."""

from dataclasses import dataclass, field

import numpy as np

from sluice_tools.report.activity import Client
from sluice_tools.report.stored import Spans
from sluice_tools.report.texts import milliseconds, short_name

OWN, SHARED, OTHER, HELD, IDLE, HOST = range(6)
_HOLDS = {1: "by a closed gate", 2: "by its own event groups", 3: "at its own sync points"}


@dataclass
class Kernel:
    """Another client's kernel that had the GPU while the job waited."""

    client: str
    name: str
    begin: int
    end: int
    when: str  # running, queued or later: what it was when the gate closed
    waited_ns: int = 0


@dataclass
class Kernels:
    """Those of one client that were the same when the gate closed."""

    longest: Kernel  # that was waited for longest
    count: int = 0
    waited_ns: int = 0


@dataclass
class Breakdown:
    begin: int
    end: int
    ns: list = field(default_factory=lambda: [0] * 6)  # by cause
    kernels: dict = field(default_factory=dict)  # Kernels by (client, when)
    shared_with: dict = field(default_factory=dict)  # ns by client
    gated: set = field(default_factory=set)  # clients whose gate this job closes
    closed: int = 0  # when it closed them; its end if never
    held: dict = field(default_factory=dict)  # ns by (why, pid of the holder)

    @property
    def total(self) -> int:
        return self.end - self.begin


def _covered(spans: Spans, at: np.ndarray) -> np.ndarray:
    """For every moment: does one of the intervals hold it?"""
    begun = np.searchsorted(np.sort(spans.begin), at, side="right")
    ended = np.searchsorted(np.sort(spans.end), at, side="right")
    return begun > ended


def _first_covering(spans: Spans, at: np.ndarray) -> np.ndarray:
    """For every moment: the first of the intervals that hold it, or -1."""
    if not len(spans):
        return np.full(len(at), -1)
    first = np.searchsorted(np.maximum.accumulate(spans.end), at, side="right")
    known = np.minimum(first, len(spans) - 1)
    return np.where((spans.begin[known] <= at) & (spans.end[known] > at), known, -1)


def break_down(begin: int, end: int, own: Client, others: list, closed: int | None = None) -> Breakdown:
    """closed: when the gates below closed, if not at the begin of the job."""
    found = Breakdown(begin, end, closed=begin if closed is None else closed)
    found.shared_with = {other.label: 0 for other in others}
    found.gated = {o.label for o in others if o.priority < own.priority and o.policy != "none"}
    stores = [own.execs, own.holds, own.launches, *(other.execs for other in others)]
    # A job may be as long as its trace: some of it at a time.
    cuts = sorted({at for store in stores for at in store.begins() if begin < at < end})
    kernels: dict = {}
    for first, last in zip([begin, *cuts], [*cuts, end]):
        _break_down_part(found, first, last, own, others, kernels)
        for key in [key for key, kernel in kernels.items() if kernel.end <= last or last == end]:
            _count(found, kernels.pop(key))
    found.shared_with = {label: ns for label, ns in found.shared_with.items() if ns}
    return found


def _break_down_part(found: Breakdown, begin: int, end: int, own: Client, others: list, kernels: dict) -> None:
    execs = own.execs.within(begin, end)
    holds = own.holds.within(begin, end)
    outstanding = own.launches.within(begin, end)
    foreign = [other.execs.within(begin, end) for other in others]
    everything = [execs, holds, outstanding, *foreign]
    cuts = np.unique(
        np.clip(
            np.concatenate([[begin, end], *(part for spans in everything for part in (spans.begin, spans.end))]),
            begin,
            end,
        )
    ).astype(np.int64)
    lengths, middles = np.diff(cuts), cuts[:-1] + np.diff(cuts) / 2
    runs, held = _covered(execs, middles), _covered(holds, middles)
    launched = _covered(outstanding, middles)
    other = np.zeros(len(middles), dtype=bool)
    for spans in foreign:
        other |= _covered(spans, middles)
    cause = np.select([runs & ~other, runs, launched & other, held, launched], [OWN, SHARED, OTHER, HELD, IDLE], HOST)
    for kind in range(6):
        found.ns[kind] += int(lengths[cause == kind].sum())
    for client, spans in zip(others, foreign):
        shared = (cause == SHARED) & _covered(spans, middles)
        found.shared_with[client.label] += int(lengths[shared].sum())
    waiting = cause == OTHER
    _blame_kernels(found, middles[waiting], lengths[waiting], others, foreign, kernels)
    _blame_holders(found, middles[cause == HELD], lengths[cause == HELD], holds)


def _blame_kernels(found: Breakdown, middles, lengths, others: list, foreign: list, kernels: dict) -> None:
    """Every piece to the one kernel that began first of those that ran."""
    if not len(middles):
        return
    first = np.array([_first_covering(spans, middles) for spans in foreign])
    begin = np.full(first.shape, np.iinfo(np.int64).max)
    for number, spans in enumerate(foreign):
        known = first[number] >= 0
        begin[number, known] = spans.begin[first[number, known]]
    of = begin.argmin(axis=0)
    for number, spans in enumerate(foreign):
        rows, which = np.unique(first[number][of == number], return_inverse=True)
        waited = np.bincount(which, lengths[of == number], len(rows)).astype(np.int64)
        for row, ns in zip(rows.tolist(), waited.tolist()):
            key = number, int(spans.begin[row]), int(spans.end[row]), str(spans["name"][row])
            if key not in kernels:
                moment = found.closed if others[number].label in found.gated else found.begin
                when = "queued" if spans["issued"][row] < moment else "later"
                when = "running" if key[1] < moment else when
                kernels[key] = Kernel(others[number].label, key[3], key[1], key[2], when)
            kernels[key].waited_ns += ns


def _count(found: Breakdown, kernel: Kernel) -> None:
    group = found.kernels.setdefault((kernel.client, kernel.when), Kernels(kernel))
    group.count += 1
    group.waited_ns += kernel.waited_ns
    if kernel.waited_ns > group.longest.waited_ns:
        group.longest = kernel


def _blame_holders(found: Breakdown, middles, lengths, holds: Spans) -> None:
    rows = _first_covering(holds, middles)
    pairs = np.stack([holds["why"][rows], holds["holder"][rows]], axis=1) if len(rows) else []
    for (why, holder), ns in zip(pairs, lengths):
        key = (int(why), int(holder))
        found.held[key] = found.held.get(key, 0) + int(ns)


def sentences(worst: Breakdown, usual: Breakdown | None, names: dict, scale: float) -> list:
    """The causes that made `worst` longer than `usual`, the largest first. `names`: label by pid."""
    excess = [(sum(worst.ns[one] - (usual.ns[one] if usual else 0) for one in causes), causes) for causes in _TEXTS]
    texts = []
    for more, causes in sorted(excess, reverse=True):
        if more <= 0.03 * worst.total:
            continue
        text = _TEXTS[causes](worst, names, scale)
        before = sum(usual.ns[one] for one in causes) if usual else 0
        if before > 0.01 * worst.total:
            text += f" (in its median job {milliseconds(before / scale)})"
        texts.append(text + ".")
    return texts


def _kernel_text(kernels: Kernels, scale: float) -> str:
    """One kernel by name with its length, or the number of several."""
    total, longest = milliseconds(kernels.waited_ns / scale), kernels.longest
    name = f"`{short_name(longest.name)}`"
    if kernels.count == 1:
        text, ran_ns = f"{name} for {total}", longest.end - longest.begin
        if ran_ns > 1.02 * longest.waited_ns:
            text += f" (of the {milliseconds(ran_ns / scale)} that it ran)"
        return text
    most = milliseconds(longest.waited_ns / scale)
    return f"{kernels.count} kernels for {total}, the longest {name} ({most})"


def _when_text(when: str, gated: bool, never_closed: bool) -> str:
    if gated and never_closed:
        return "which ran while the gate was open"
    moment = "the gate closed" if gated else "the job began"
    if when == "later":
        return "launched while the gate was closed" if gated else "launched after the job began"
    return f"which had started before {moment}" if when == "running" else f"launched before {moment}"


def _other_text(worst: Breakdown, names: dict, scale: float) -> str:
    groups = sorted(worst.kernels.items(), key=lambda item: -item[1].longest.waited_ns)
    texts = []
    for client in dict.fromkeys(client for (client, _), _ in groups):
        parts = [
            f"{_kernel_text(kernels, scale)}, {_when_text(when, client in worst.gated, worst.closed == worst.end)}"
            for when in ("running", "queued", "later")
            if (kernels := worst.kernels.get((client, when)))
        ]
        texts.append(f"{client}'s " + "; and ".join(parts))
    return (
        f"For {milliseconds(worst.ns[OTHER] / scale)} the GPU ran other work while its own was "
        "launched and waiting: " + "; ".join(texts)
    )


def _running_text(worst: Breakdown, names: dict, scale: float) -> str:
    text = f"Its own kernels were on the GPU for {milliseconds((worst.ns[OWN] + worst.ns[SHARED]) / scale)}"
    if worst.ns[SHARED] > 0.01 * worst.total:
        text += (
            f", {milliseconds(worst.ns[SHARED] / scale)} of it while one of {' and '.join(worst.shared_with)} had "
            "begun and not ended"
        )
    return text


def _held_text(worst: Breakdown, names: dict, scale: float) -> str:
    parts = []
    for (why, pid), ns in sorted(worst.held.items(), key=lambda item: -item[1]):
        part = f"{milliseconds(ns / scale)} {_HOLDS.get(why, 'by Sluice')}"
        parts.append(part + (f", for a job of {names.get(pid, f'pid {pid}')}" if pid else ""))
    return "Its launching thread was held " + "; ".join(parts)


def _idle_text(worst: Breakdown, names: dict, scale: float) -> str:
    return (
        f"For {milliseconds(worst.ns[IDLE] / scale)} its work was launched and no recorded kernel ran: launch "
        "latency, copies, or a switch of the GPU between processes"
    )


def _host_text(worst: Breakdown, names: dict, scale: float) -> str:
    return f"For {milliseconds(worst.ns[HOST] / scale)} its own program had nothing launched"


# Time of its own kernels is one cause here: whose turn it was is no delay, that they took longer is.
_TEXTS = {
    (OTHER,): _other_text,
    (OWN, SHARED): _running_text,
    (HELD,): _held_text,
    (IDLE,): _idle_text,
    (HOST,): _host_text,
}
