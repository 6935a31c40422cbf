"""A chart as SVG: points with ranges, and lines, on linear or logarithmic axes that cut nothing. Needs no package."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 640, 380
LEFT, RIGHT, TOP, BOTTOM = 72, 36, 16, 46
COLOURS = ("#3b82f6", "#d97706", "#059669", "#d6476b", "#8b5cf6", "#64748b", "#0891b2", "#a16207")
GREY = "#8a8f98"
_LOG_TICKS = tuple(digit * 10.0**power for power in range(-6, 9) for digit in (1, 1.2, 1.5, 2, 3, 4, 6))


def colour_of(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


@dataclass
class Point:
    x: float
    y: float
    y_range: tuple[float, float]  # both equal: no bar
    x_range: tuple[float, float]
    text: str = ""  # where the mouse is on it


@dataclass
class Series:
    name: str
    points: list[Point]
    colour: str
    line: str = ""  # "solid", "dash" or "dot" joins the points; "": they are apart
    marker: bool = True


@dataclass
class Axis:
    title: str
    low: float
    high: float
    log: bool = False
    form: Callable[[float], str] = "{:g}".format
    ticks: Sequence[float] = ()  # none: round numbers

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
        step = 10.0 ** math.floor(math.log10(self.high - self.low))
        while (self.high - self.low) / step < 5:
            step /= 2
        first = math.ceil(self.low / step - 1e-9)
        return [step * place for place in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass
class Chart:
    x: Axis
    y: Axis
    series: list[Series]
    caption: str
    across: list[float] = field(default_factory=list)  # dashed lines at these y
    upright: list[tuple[float, str]] = field(default_factory=list)  # dashed lines at these x, with a text
    key: list[str] = field(default_factory=list)  # a text for each series; none: their names

    def html(self, title: str = "") -> str:
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        parts = [
            f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{self._y(tick):.1f}" y2="{self._y(tick):.1f}"/>'
            f'<text x="{LEFT - 8}" y="{self._y(tick) + 4:.1f}" text-anchor="end">{self.y.form(tick)}</text>'
            for tick in self.y.shown(22 / (bottom - TOP))
        ]
        parts += [
            f'<line class="grid" y1="{TOP}" y2="{bottom}" x1="{self._x(tick):.1f}" x2="{self._x(tick):.1f}"/>'
            f'<text x="{self._x(tick):.1f}" y="{bottom + 18}" text-anchor="middle">{self.x.form(tick)}</text>'
            for tick in self.x.shown(60 / (right - LEFT))
        ]
        parts += [
            f'<line class="alone" x1="{LEFT}" x2="{right}" y1="{self._y(at):.1f}" y2="{self._y(at):.1f}"/>'
            for at in self.across
        ]
        for at, text in self.upright:
            side = "end" if self.x.part(at) > 0.5 else "start"
            parts.append(
                f'<line class="alone" y1="{TOP}" y2="{bottom}" x1="{self._x(at):.1f}" x2="{self._x(at):.1f}"/>'
                f'<text x="{self._x(at) + (-6 if side == "end" else 6):.1f}" y="{bottom - 8}" '
                f'text-anchor="{side}">{escape(text)}</text>'
            )
        parts += map(self._series, self.series)
        texts = self.key or [one.name for one in self.series]
        key = "".join(
            f'<li><span style="background:{one.colour}"></span>{escape(text)}</li>'
            for one, text in zip(self.series, texts)
        )
        about = escape(f"{self.y.title} against {self.x.title}")
        head = f"<h3>{escape(title)}</h3>" if title else ""
        return f"""{head}
<ul class="key">{key}</ul>
<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{about}">
{"".join(parts)}
<text x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(self.x.title)}</text>
</svg><figcaption>{escape(self.caption)}</figcaption></figure>"""

    def _x(self, value: float) -> float:
        return LEFT + self.x.part(value) * (WIDTH - LEFT - RIGHT)

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - self.y.part(value) * (HEIGHT - TOP - BOTTOM)

    def _series(self, series: Series) -> str:
        parts = [self._point(point, series.marker) for point in series.points]
        if series.line and len(series.points) > 1:
            at = " ".join(f"{self._x(point.x):.1f},{self._y(point.y):.1f}" for point in series.points)
            parts.insert(0, f'<polyline class="{series.line}" fill="none" points="{at}"/>')
        return f'<g stroke="{series.colour}" fill="{series.colour}">{"".join(parts)}</g>'

    def _point(self, point: Point, marker: bool) -> str:
        x, y = self._x(point.x), self._y(point.y)
        (low_y, high_y), (low_x, high_x) = map(self._y, point.y_range), map(self._x, point.x_range)
        parts = [f"<title>{escape(point.text)}</title>"] if point.text else []
        if low_y != high_y:
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low_y:.1f}" y2="{high_y:.1f}"/>')
            parts.append(f'<line x1="{x - 5:.1f}" x2="{x + 5:.1f}" y1="{high_y:.1f}" y2="{high_y:.1f}"/>')
        if low_x != high_x:
            parts.append(f'<line x1="{low_x:.1f}" x2="{high_x:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        if marker:
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"/>')
        return f"<g>{''.join(parts)}</g>"
