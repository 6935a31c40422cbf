"""Which mode and width to start two commands with: time-sliced, or under MPS with best effort in a part of the SMs.

MPS shares one set of faults. So it is recommended only where it pays: best effort gains at the latency of time slicing,
the latency falls at the speed of best effort, or a target is kept that is not kept time-sliced.
"""

import math
from dataclasses import dataclass
from statistics import fmean, median

from sluice_tools.common.grammar import WHOLE, parse_target, width_text
from sluice_tools.compare.answer import SAME_LATENCY, SAME_SPEED, Change
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, number
from sluice_tools.measure.statistics import ENOUGH_FOR_P99
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE, how_many
from sluice_tools.measure.table import digits

TIME_SLICED, MPS_PRIORITY = "time-sliced", "MPS + priority"
WIDTHS = (WHOLE, 50, 25, 12)  # percent of the SMs
FAULTS = "MPS shares one set of faults: a fatal fault of one program ends the kernels of the others."
_NEARLY = 0.01  # of the jobs: so many fewer than its percentile keep a target, too
_MAYBE = 0.1  # a gain of best effort that more rounds should rule out before time slicing is recommended


@dataclass(frozen=True)
class Way:
    """How to start the two. width: of best effort; WHOLE if time-sliced."""

    mode: str
    condition: str
    width: int = WHOLE

    @property
    def cell(self) -> str:
        return cell_of(self.condition, self.width)

    @property
    def flags(self) -> tuple[str, str]:
        """Of `sluice exec`, for the critical and for the best-effort command."""
        return (" --mps", f" --mps --sms {width_text(self.width)}") if self.mode == MPS_PRIORITY else ("", "")

    def __str__(self) -> str:
        if self.mode == TIME_SLICED:
            return "time-sliced"
        return f"under MPS with {'all' if self.width == WHOLE else f'{self.width} % of the'} SMs"


def cell_of(condition: str, width: int) -> str:
    return condition if width == WHOLE else f"{condition}, sms={width_text(width)}"


@dataclass(frozen=True)
class Choice:
    """way: what is recommended. text: why, in a sentence. sure: more rounds would not change it."""

    way: Way
    text: str
    sure: bool


class _Rounds:
    """Figures of one way, by round. ms, x: of the critical latency; share: of best effort's speed alone."""

    def __init__(self, rows: list[dict], way: Way, figure: str):
        mode = [row for row in rows if row["mode"] == way.mode]
        self.way = way
        self.ms = _values(mode, way.cell, CRITICAL, figure)
        self.share = _against(_values(mode, way.cell, BEST_EFFORT, "per_s"), mode, BEST_EFFORT_ALONE, "per_s")
        self.x = _against(self.ms, mode, ALONE, figure)
        self._critical = [row for row in mode if (row["cell"], row["role"]) == (way.cell, CRITICAL)]

    def in_time(self) -> list[float]:
        """The share of the jobs or steps that kept the target, by the count of Sluice."""
        counts = [(number(row, "target_kept") or 0, number(row, "target_jobs") or 0) for row in self._critical]
        return [kept / jobs for kept, jobs in counts if jobs]

    def keeps(self, target: str) -> bool:
        """By the jobs or steps of all rounds together; a window alone has few."""
        asked, jobs = parse_target(target), sum(number(row, "target_jobs") or 0 for row in self._critical)
        kept = sum(number(row, "target_kept") or 0 for row in self._critical)
        return asked is not None and jobs > 0 and kept / jobs >= asked.percent / 100 - _NEARLY

    def text(self, figure: str) -> str:
        ms, kept = median(self.ms.values()), self.in_time()
        said = [f"critical {figure.removesuffix('_ms')} {ms:.{digits(ms)}f} ms"]
        said[0] += f" ({median(self.x.values()):.2f} × alone)" if self.x else ""
        said += [f"{math.floor(1000 * median(kept)) / 10:g} % in time"] if kept else []
        return ", ".join([*said, f"best effort {100 * median(self.share.values()):.0f} %"])


def _values(rows: list[dict], cell: str, role: str, name: str) -> dict[str, float]:
    same = [row for row in rows if (row["cell"], row["role"]) == (cell, role)]
    return {row["repeat"]: value for row in same if (value := number(row, name)) is not None}


def _against(values: dict[str, float], rows: list[dict], cell: str, name: str) -> dict[str, float]:
    """As parts of those of `cell`: of the same round, else of their median."""
    alone = _values(rows, cell, CRITICAL if cell == ALONE else BEST_EFFORT, name)
    usual = median(alone.values()) if alone else 0.0
    return {key: value / by for key, value in values.items() if (by := alone.get(key) or usual)}


@dataclass(frozen=True)
class _Compared:
    """A way under MPS against the same time-sliced. ratio: of the latency, as a logarithm."""

    rounds: _Rounds
    ratio: Change
    gain: Change
    fits: bool

    @property
    def rounds_of(self) -> int:
        """How many both have."""
        return len(self.rounds.ms)

    @property
    def pays(self) -> bool:
        faster = self.ratio.mean < -math.log1p(SAME_LATENCY) and self.gain.mean >= -SAME_SPEED
        return self.fits and (self.gain.mean > SAME_SPEED or faster)

    @property
    def sure(self) -> bool:
        return self.gain.low > 0 or self.ratio.high < 0


def _compare(base: _Rounds, other: _Rounds, target: str) -> _Compared | None:
    ratio = Change.of([math.log(other.ms[key] / base.ms[key]) for key in base.ms if other.ms.get(key)])
    gain = Change.of([other.share[key] - base.share[key] for key in base.share if key in other.share])
    if ratio is None or gain is None:
        return None
    fits = other.keeps(target) if target else ratio.mean <= math.log1p(SAME_LATENCY)
    return _Compared(other, ratio, gain, fits)


def _figure(rows: list[dict], cells: set[str]) -> str:
    """p99 if every critical row of these cells has one of enough jobs."""
    critical = [row for row in rows if row["role"] == CRITICAL and row["cell"] in cells]
    enough = all(how_many(row) >= ENOUGH_FOR_P99 and number(row, "p99_ms") is not None for row in critical)
    return "p99_ms" if enough else "p50_ms"


def _best(compared: list[_Compared]) -> _Compared | None:
    """Most best effort; of those that are alike in it, the lowest latency."""
    if not compared:
        return None
    most = max(one.gain.mean for one in compared)
    return min((one for one in compared if one.gain.mean >= most - SAME_SPEED), key=lambda one: one.ratio.mean)


def choose(rows: list[dict], condition: str, target: str = "") -> Choice | None:
    """rows: of both modes. condition: the cell without its width. target: that of the critical command in it. None
    where a mode lacks what is compared."""
    ways = [Way(MPS_PRIORITY, condition, width) for width in WIDTHS]
    figure = _figure(rows, {way.cell for way in ways})
    base = _Rounds(rows, Way(TIME_SLICED, condition), figure)
    compared = [found for way in ways if (found := _compare(base, _Rounds(rows, way, figure), target))]
    if not compared:
        return None
    base_fits = not target or base.keeps(target)
    fitting = [one for one in compared if one.fits and (one.pays or not base_fits)]
    best = _best(fitting)
    if best is None:
        return _stay(base, compared, figure, target, base_fits)
    sure = best.sure or (not base_fits and best.rounds_of > 1)
    way = best.rounds.way
    text = f"{_word('Start', sure)} best effort {way}{_for(target)} (sluice exec{way.flags[1]}): "
    text += f"{best.rounds.text(figure)}; time-sliced: {base.text(figure)}{_points(best.gain)}. {FAULTS}"
    return Choice(way, text, sure)


def _word(word: str, sure: bool) -> str:
    return word if sure else f"Probably {word.lower()}"


def _for(target: str) -> str:
    return f" for {target}" if target else ""


def _points(gain: Change) -> str:
    text = f"; that is {100 * gain.mean:+.0f} points of best effort"
    known = gain.high - gain.low <= 1
    return text + (f" ({100 * gain.low:+.0f} to {100 * gain.high:+.0f})" if known else "")


def _stay(base: _Rounds, compared: list[_Compared], figure: str, target: str, base_fits: bool) -> Choice:
    fitting = [one for one in compared if one.fits]
    sure = all(one.rounds_of > 1 for one in compared) and not any(one.gain.high > _MAYBE for one in fitting)
    stay = f"{_word('Stay', sure)} time-sliced{_for(target)}: "
    if not base_fits:
        near = max(compared, key=lambda one: fmean(one.rounds.in_time() or [0.0])).rounds
        text = f"Neither time slicing nor a width under MPS keeps {target}; nearest is best effort {near.way}: "
        text += f"{near.text(figure)}."
    elif best := _best(fitting):
        text = f"{stay}MPS gains nothing that pays for its shared faults; best effort {best.rounds.way}: "
        text += f"{best.rounds.text(figure)}; time-sliced: {base.text(figure)}."
    else:
        limit = target or f"a latency within {100 * SAME_LATENCY:.0f} % of that of time slicing"
        text = f"{stay}no width under MPS keeps {limit}."
    return Choice(base.way, text, sure)
