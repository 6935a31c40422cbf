"""What a job was waiting for: its time cut into pieces with one cause each, and said in words."""

from dataclasses import dataclass, field

import numpy as np

from sluice_tools.report.activity import Client, Spans

OWN, SHARED, OTHER, HELD, IDLE, HOST = range(6)
_HOLDS = {1: "by a closed gate", 2: "by its own event groups", 3: "at its own sync points"}


@dataclass
class Kernel:
    """Another client's kernel that had the GPU while the job waited."""

    client: str
    name: str
    waited_ns: int
    ran_ns: int
    when: str  # running, queued or later: what it was when the gate closed


@dataclass
class Breakdown:
    begin: int
    end: int
    ns: list = field(default_factory=lambda: [0] * 6)  # by cause
    kernels: list = field(default_factory=list)
    shared_with: dict = field(default_factory=dict)  # ns by client
    gated: set = field(default_factory=set)  # clients whose gate this job closes
    held: dict = field(default_factory=dict)  # ns by (why, pid of the holder)

    @property
    def total(self) -> int:
        return self.end - self.begin


def _covered(spans: Spans, at: np.ndarray) -> np.ndarray:
    """For every moment: does one of the intervals hold it?"""
    begun = np.searchsorted(np.sort(spans.begin), at, side="right")
    ended = np.searchsorted(np.sort(spans.end), at, side="right")
    return begun > ended


def break_down(begin: int, end: int, own: Client, others: list) -> Breakdown:
    found = Breakdown(begin, end)
    execs = own.execs.within(begin, end)
    holds = own.holds.within(begin, end)
    outstanding = own.outstanding().within(begin, end)
    foreign = [other.execs.within(begin, end) for other in others]
    everything = [execs, holds, outstanding, *foreign]
    cuts = np.unique(
        np.clip(
            np.concatenate(
                [[begin, end], *(part for spans in everything for part in (spans.begin, spans.end))]
            ),
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
    cause = np.select(
        [runs & ~other, runs, launched & other, held, launched], [OWN, SHARED, OTHER, HELD, IDLE], HOST
    )
    found.ns = [int(lengths[cause == kind].sum()) for kind in range(6)]
    found.gated = {o.label for o in others if o.priority < own.priority and o.policy != "none"}
    for client, spans in zip(others, foreign):
        shared = (cause == SHARED) & _covered(spans, middles)
        if shared.any():
            found.shared_with[client.label] = int(lengths[shared].sum())
    _blame_kernels(found, middles[cause == OTHER], lengths[cause == OTHER], others, foreign)
    _blame_holders(found, middles[cause == HELD], lengths[cause == HELD], holds)
    return found


def _blame_kernels(found: Breakdown, middles, lengths, others: list, foreign: list) -> None:
    """Every piece to the one kernel that began first of those that ran."""
    waited = {}
    for middle, length in zip(middles, lengths):
        first = None
        for number, spans in enumerate(foreign):
            running = np.flatnonzero((spans.begin <= middle) & (spans.end > middle))
            if len(running) and (first is None or spans.begin[running[0]] < first[0]):
                first = (spans.begin[running[0]], number, running[0])
        if first is not None:
            waited[first[1:]] = waited.get(first[1:], 0) + int(length)
    for (number, index), ns in waited.items():
        spans = foreign[number]
        begin = int(spans.begin[index])
        when = (
            "running"
            if begin < found.begin
            else "queued"
            if spans["issued"][index] < found.begin
            else "later"
        )
        found.kernels.append(
            Kernel(
                others[number].label, str(spans["name"][index]), ns, int(spans.end[index]) - begin, when
            )
        )
    found.kernels.sort(key=lambda kernel: -kernel.waited_ns)


def _blame_holders(found: Breakdown, middles, lengths, holds: Spans) -> None:
    for middle, length in zip(middles, lengths):
        index = np.flatnonzero((holds.begin <= middle) & (holds.end > middle))[0]
        key = (int(holds["why"][index]), int(holds["holder"][index]))
        found.held[key] = found.held.get(key, 0) + int(length)


def milliseconds(ns: float) -> str:
    ms = ns / 1e6
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms" if ms >= 10 else f"{ms:.2f} ms"


def short_name(name: str, length: int = 60) -> str:
    """A C++ kernel's name without arguments, cut in the middle."""
    name = name.removeprefix("void ").split("(", 1)[0] if not name.startswith("(") else name
    name = name or "an unnamed kernel"
    return name if len(name) <= length else name[: length // 2] + "..." + name[-length // 2 + 3 :]


def sentences(worst: Breakdown, usual: Breakdown | None, names: dict, scale: float) -> list:
    """The causes that made `worst` longer than `usual`, the largest first. `names`: label by pid."""
    excess = [
        (sum(worst.ns[one] - (usual.ns[one] if usual else 0) for one in causes), causes)
        for causes in _TEXTS
    ]
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


def _kernel_text(kernels: list, scale: float) -> str:
    """One kernel by name with its length, or the number of several."""
    total = milliseconds(sum(kernel.waited_ns for kernel in kernels) / scale)
    longest = max(kernels, key=lambda kernel: kernel.waited_ns)
    name = f"`{short_name(longest.name)}`"
    if len(kernels) == 1:
        text = f"{name} for {total}"
        if longest.ran_ns > 1.02 * longest.waited_ns:
            text += f" (of the {milliseconds(longest.ran_ns / scale)} that it ran)"
        return text
    most = milliseconds(longest.waited_ns / scale)
    return f"{len(kernels)} kernels for {total}, the longest {name} ({most})"


def _when_text(when: str, gated: bool) -> str:
    moment = "the gate closed" if gated else "the job began"
    if when == "later":
        return "launched while the gate was closed" if gated else "launched after the job began"
    return f"which had started before {moment}" if when == "running" else f"launched before {moment}"


def _other_text(worst: Breakdown, names: dict, scale: float) -> str:
    clients = list(dict.fromkeys(kernel.client for kernel in worst.kernels))
    texts = []
    for client in clients:
        mine = [kernel for kernel in worst.kernels if kernel.client == client]
        parts = [
            f"{_kernel_text(chosen, scale)}, {_when_text(when, client in worst.gated)}"
            for when in ("running", "queued", "later")
            if (chosen := [kernel for kernel in mine if kernel.when == when])
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
