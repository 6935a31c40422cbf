"""What a measurement says in a sentence: against no gating, against a target, and which T to take."""

import math
from statistics import median

from sluice_tools.common.grammar import Target, parse_policy
from sluice_tools.measure.statistics import ENOUGH_TO_JUDGE
from sluice_tools.measure.summary import Entry, middle
from sluice_tools.measure.table import digits

# Differences below these are said to be none, also where the repeats agree to the digit.
_SAME_LATENCY, _SAME_SPEED = 0.02, 0.01
# Waits for the GPU below this part of the latency alone say nothing: the program polls, or its host is all that it has.
WAITS_COUNT = 0.01
DISTURBED = 0.9  # times alone: nothing is faster than alone


def wanted(target: Target) -> str:
    return f"{target.figure} <= {target.limit:g}{' × alone' if target.relative else ' ms'}"


def judge_target(name: str, entry: Entry, other: Entry | None) -> str:
    """What the target of the cell `entry` costs and brings, next to `other`, the same without a target."""
    if not entry.in_time or entry.fewest_jobs < ENOUGH_TO_JUDGE:
        return ""
    limit = f" ({_ms(median(entry.limit_ms))})" if entry.limit_ms and name.endswith("x") else ""
    share = math.floor(1000 * median(entry.in_time)) / 10
    text = f"With target {name}{limit} {share:g} % of the critical jobs are in time"
    if not entry.share:
        return text + "."
    text += f", and best effort keeps {100 * median(entry.share):.0f} % of its own speed"
    if other and other.share:
        text += f"; it keeps {100 * median(other.share):.0f} % under {other.cell} without a target"
    return text + "."


def latency_figure(*entries: Entry) -> str:
    """The figure that these cells are compared by: p99 if every repeat of all has enough jobs for one."""
    return "p99" if all(entry.in_all("p99") for entry in entries) else "p50"


def _ms(value: float) -> str:
    return f"{value:.{digits(value)}f} ms"


def differs(one: list, other: list, at_least: float) -> int:
    """-1, 0 or 1: whether `one` is below, within or above `other`, by more than the spread of both, and by more
    than this part of the greater one."""
    a, b = middle(one), middle(other)
    if a is None or b is None or abs(a - b) <= at_least * max(a, b):
        return 0
    if a < b:
        return -1 if max(one) < min(other) else 0
    return 1 if min(one) > max(other) else 0


def judge(bare: Entry, entry: Entry) -> str:
    """How `entry` compares with `bare`, in which nothing is gated."""
    fewest = min(bare.fewest_jobs, entry.fewest_jobs)
    if fewest < ENOUGH_TO_JUDGE:
        return (
            f"Too few critical jobs to judge {entry.cell} ({fewest}; at least {ENOUGH_TO_JUDGE} "
            "in each cell): measure for longer."
        )
    figure = latency_figure(bare, entry)
    if min(middle(one.x["p50"]) or 1 for one in (bare, entry)) < DISTURBED:
        return (
            "Disturbed: alone, the critical client was slower than next to best effort. Something else used the host "
            "or the GPU; measure again."
        )
    before, after = bare.ms[figure], entry.ms[figure]
    latency = differs(after, before, _SAME_LATENCY)
    speed = differs(entry.share, bare.share, _SAME_SPEED)
    alone = f" ({middle(entry.x[figure]):.2f} × alone)" if entry.x[figure] else ""
    text = f"Under {entry.cell} the critical {figure} "
    if latency:
        text += f"{'falls' if latency < 0 else 'RISES'} from {_ms(median(before))} to {_ms(median(after))}{alone}"
    else:
        text += f"stays at {_ms(median(after))}{alone}, within the spread"
    if entry.share and bare.share:
        now, then = (f"{100 * median(values):.0f} %" for values in (entry.share, bare.share))
        text += f"; best effort keeps {now} of its own speed" + (
            f", {'less' if speed < 0 else 'more'} than the {then} without gating" if speed else ", as without gating"
        )
    worse = latency > 0 or (latency == 0 and speed < 0)
    return text + (". Gating does not pay here: use policy none." if worse else ".")


def spacing_us(entry: Entry) -> int | None:
    """T of device:Tus."""
    policy = parse_policy(entry.cell)
    return policy.number if policy and policy.form() == "device:Tus" else None


def choose_spacing(entries: list[Entry], target: Target | None, bare: Entry | None = None) -> str:
    """Which T to take: none if the target is kept without gating, else the largest that keeps it;
    without a target, the largest whose latency is within the spread of the best. Empty where fewer
    than two values of T were measured."""
    if target and bare and bare.fewest_jobs >= ENOUGH_TO_JUDGE and _keeps(bare, target):
        return f"{wanted(target)} is kept without gating{_kept(bare)}: use policy none."
    spaced = sorted((entry for entry in entries if spacing_us(entry)), key=lambda entry: spacing_us(entry) or 0)
    if len(spaced) < 2 or min(entry.fewest_jobs for entry in spaced) < ENOUGH_TO_JUDGE:
        return ""
    if target:
        known = [entry for entry in spaced if _values(entry, target)]
        kept = [entry for entry in known if _keeps(entry, target)]
        if not known:
            return f"No cell has enough jobs for a {target.figure}: measure for longer."
        if not kept:
            nearest = min(known, key=lambda entry: median(_values(entry, target)))
            return (
                f"No measured T keeps {wanted(target)}; {nearest.cell} comes nearest. Announce jobs, "
                "or make the best-effort kernels shorter."
            )
        return f"For {wanted(target)}: T = {spacing_us(kept[-1])} us{_kept(kept[-1])}."
    figure = latency_figure(*spaced)
    best = min(spaced, key=lambda entry: median(entry.ms[figure]))
    equal = [entry for entry in spaced if differs(entry.ms[figure], best.ms[figure], 0.05) <= 0]
    return f"T = {spacing_us(equal[-1])} us is the largest measured T at the lowest {figure}{_kept(equal[-1])}."


def _values(entry: Entry, target: Target) -> list:
    return entry.in_all(target.figure, target.relative)


def _keeps(entry: Entry, target: Target) -> bool:
    """In every repeat."""
    return max(_values(entry, target), default=math.inf) <= target.limit


def _kept(entry: Entry) -> str:
    return f" (best effort keeps {100 * median(entry.share):.0f} %)" if entry.share else ""
