"""A chart as SVG: points with ranges, lines and bars, on linear or logarithmic axes that cut nothing. Needs no package.

What the mouse is on says its numbers.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

RIGHT, BOTTOM = 36, 46
COLOURS = ("#3b82f6", "#d97706", "#059669", "#d6476b", "#8b5cf6", "#64748b", "#0891b2", "#a16207")
GREY, RED = "#8a8f98", "#d6476b"
_ROW = 42  # the name of a row, and below it its bars
_LOG_TICKS = tuple(digit * 10.0**power for power in range(-6, 9) for digit in (1, 1.2, 1.5, 2, 3, 4, 6))


def colour_of(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


@dataclass
class Point:
    x: float
    y: float
    text: str = ""  # where the mouse is on it
    y_range: tuple[float, float] | None = None  # a bar between the two
    x_range: tuple[float, float] | None = None


@dataclass
class Bar:
    x: tuple[float, float]
    y: tuple[float, float]
    text: str
    opacity: float = 1.0


@dataclass
class Series:
    name: str
    points: list[Point]
    colour: str
    line: str = ""  # "solid", "dash" or "dot" joins the points; "": they are apart
    marker: float = 5  # the radius; 0: none
    step: bool = False  # the line keeps the height of a point until the next one
    bars: list[Bar] = field(default_factory=list)


@dataclass
class Axis:
    title: str
    low: float
    high: float
    log: bool = False
    form: Callable[[float], str] = "{:g}".format
    ticks: Sequence[float] = ()  # none: round numbers
    rows: Sequence[str] = ()  # of a vertical axis: names instead of ticks, from 0 at the top

    @classmethod
    def from_zero(cls, title: str, values: Sequence[float], **more) -> "Axis":
        return cls(title, 0, 1.05 * max(values, default=0) or 1, **more)

    @classmethod
    def around(cls, title: str, values: Sequence[float], **more) -> "Axis":
        """Logarithmic; values must be above 0."""
        return cls(title, min(values) / 1.1, max(values) * 1.1, log=True, **more)

    @classmethod
    def of_rows(cls, names: Sequence[str]) -> "Axis":
        return cls("", len(names), 0, rows=names)

    def part(self, value: float) -> float:
        """From 0 at the low end to 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def shown(self, apart: float) -> list[float]:
        """Ticks that are at least this part of the axis from each other."""
        found: list[float] = []
        for tick in sorted(self.ticks) or (_LOG_TICKS if self.log else self._round()):
            inside = self.low - 1e-9 <= tick <= self.high + 1e-9
            if inside and (not found or self.part(tick) - self.part(found[-1]) >= apart):
                found.append(tick)
        return found

    def _round(self) -> list[float]:
        power = 10.0 ** math.floor(math.log10(self.high - self.low))
        step = next(step for step in (power, power / 2, power / 5) if (self.high - self.low) / step >= 5)
        first = math.ceil(self.low / step - 1e-9)
        return [step * place for place in range(first, math.floor(self.high / step + 1e-9) + 1)]


def in_row(place: int, number: int = 0, of: int = 1) -> tuple[float, float]:
    """The height of a bar in a row, or of one of several bars below each other."""
    return place + 0.45 + 0.5 * number / of, place + 0.45 + 0.5 * (number + 1) / of


@dataclass
class Chart:
    x: Axis
    y: Axis
    series: list[Series]
    caption: str = ""
    title: str = ""
    across: list[tuple[float, str]] = field(default_factory=list)  # dashed lines at these y, with a text
    upright: list[tuple[float, str]] = field(default_factory=list)  # the same at these x
    key: list[str] = field(
        default_factory=list
    )  # a text for each series; none: their names, of more than one and without rows
    width: int = 640
    plot_height: int = 306

    def __post_init__(self):
        self.left, self.top = (12, 44 if self.upright else 8) if self.y.rows else (72, 28)
        self.right = self.width - RIGHT
        self.bottom = self.top + (_ROW * len(self.y.rows) if self.y.rows else self.plot_height)

    def html(self) -> str:
        parts = [*self._grid(), *self._lines(), *self._names(), *map(self._series, self.series)]
        texts = self.key or [one.name for one in self.series if len(self.series) > 1 and not self.y.rows]
        key = "".join(
            f'<li><span style="background:{one.colour}"></span>{escape(text)}</li>'
            for one, text in zip(self.series, texts)
        )
        about = escape(f"{self.y.title or 'bars'} against {self.x.title}")
        size = f'viewBox="0 0 {self.width} {self.bottom + BOTTOM}"{" class=wide" if self.width > 500 else ""}'
        return f"""{f"<h3>{escape(self.title)}</h3>" if self.title else ""}
<figure>{f'<ul class="key">{key}</ul>' if key else ""}
<svg {size} role="img" aria-label="{about}">
{"".join(parts)}
{_text(4, 18, self.y.title)}{_text((self.left + self.right) / 2, self.bottom + BOTTOM - 6, self.x.title, "middle")}
</svg><figcaption>{escape(self.caption)}</figcaption></figure>"""

    def _x(self, value: float) -> float:
        return self.left + self.x.part(value) * (self.right - self.left)

    def _y(self, value: float) -> float:
        return self.bottom - self.y.part(value) * (self.bottom - self.top)

    def _across(self) -> list[float]:
        return [] if self.y.rows else self.y.shown(22 / (self.bottom - self.top))

    def _upright(self) -> list[float]:
        return self.x.shown(60 / (self.right - self.left))

    def _grid(self) -> list[str]:
        parts = [_line("grid", self.left, self.right, self._y(tick), self._y(tick)) for tick in self._across()]
        return parts + [_line("grid", self._x(tick), self._x(tick), self.top, self.bottom) for tick in self._upright()]

    def _names(self) -> list[str]:
        parts = [_text(self.left, self._y(place) + 15, name) for place, name in enumerate(self.y.rows)]
        parts += [_text(64, self._y(tick) + 4, self.y.form(tick), "end") for tick in self._across()]
        texts = ((self._x(tick), self.x.form(tick)) for tick in self._upright())
        return parts + [_text(x, self.bottom + 18, text, "middle") for x, text in texts]

    def _lines(self) -> list[str]:
        parts = []
        for at, text in self.across:
            y = self._y(at)
            parts.append(_line("alone", self.left, self.right, y, y) + _text(self.right - 4, y - 5, text, "end"))
        for number, (at, text) in enumerate(self.upright):
            x, side = self._x(at), "end" if self.x.part(at) > 0.5 else "start"
            y = self.top - 6 - 18 * (number % 2) if self.y.rows else self.bottom - 8 - 18 * number
            parts.append(_line("alone", x, x, self.top, self.bottom))
            parts.append(_text(x + (-6 if side == "end" else 6), y, text, side))
        return parts

    def _series(self, series: Series) -> str:
        parts = [*map(self._bar, series.bars), *(self._point(point, series.marker) for point in series.points)]
        if series.line and len(series.points) > 1:
            places = [(self._x(point.x), self._y(point.y)) for point in series.points]
            if series.step:
                corners = [((x, before), (x, y)) for (_, before), (x, y) in itertools.pairwise(places)]
                places[1:] = itertools.chain(*corners)
            at = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.insert(0, f'<polyline class="{series.line}" fill="none" points="{at}"/>')
        return f'<g stroke="{series.colour}" fill="{series.colour}">{"".join(parts)}</g>'

    def _bar(self, bar: Bar) -> str:
        (left, right), (top, bottom) = sorted(map(self._x, bar.x)), sorted(map(self._y, bar.y))
        return (
            f'<rect x="{left:.2f}" y="{top:.1f}" width="{max(right - left, 0.5):.2f}" height="{bottom - top:.1f}" '
            f'stroke="none" opacity="{bar.opacity:.2g}"><title>{escape(bar.text)}</title></rect>'
        )

    def _point(self, point: Point, radius: float) -> str:
        x, y = self._x(point.x), self._y(point.y)
        parts = [f"<title>{escape(point.text)}</title>"] if point.text else []
        if point.y_range and point.y_range[0] != point.y_range[1]:
            low, high = map(self._y, point.y_range)
            parts += [_line("", x, x, low, high), _line("", x - 5, x + 5, high, high)]
        if point.x_range and point.x_range[0] != point.x_range[1]:
            parts.append(_line("", self._x(point.x_range[0]), self._x(point.x_range[1]), y, y))
        if radius or point.text:  # of a line without markers, the mouse finds the points
            seen = "" if radius else ' class="unseen"'
            parts.append(f'<circle{seen} cx="{x:.1f}" cy="{y:.1f}" r="{radius or 4:g}"/>')
        return f"<g>{''.join(parts)}</g>" if parts else ""


def _line(kind: str, x1: float, x2: float, y1: float, y2: float) -> str:
    look = f'class="{kind}" ' if kind else ""
    return f'<line {look}x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>' if text else ""
