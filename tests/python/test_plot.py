"""The SVG of all pages: a point, bar or line beside its place would say something false."""

import re

import pytest
from sluice_tools.measure.plot import Axis, Bar, Chart, Point, Series, in_row


def chart(*series: Series, **more) -> Chart:
    more = {"x": Axis("time, s", 0, 10), "y": Axis("jobs", 0, 5)} | more
    return Chart(series=list(series), **more)


def numbers(text: str, *names: str) -> list[tuple[float, ...]]:
    """The values of attributes that follow each other."""
    return [tuple(map(float, found)) for found in re.findall(" ".join(rf'{name}="([-0-9.]+)"' for name in names), text)]


def test_a_point_is_where_its_numbers_are():
    html = chart(Series("a", [Point(0, 0, "zero"), Point(10, 5, "most")], "red")).html()
    assert numbers(html, "cx", "cy") == [(72, 334), (604, 28)]
    assert html.index("<title>zero") < html.index('cx="72.0"') < html.index("<title>most") < html.index('cx="604.0"')


def test_ranges_reach_from_the_least_to_the_most():
    html = chart(Series("a", [Point(5, 1, "", (1, 4), (2.5, 7.5)), Point(1, 1, "", (1, 1))], "red")).html()
    drawn = html[html.index('<g stroke="red"') :]
    assert numbers(drawn, "x1", "x2", "y1", "y2") == [
        (338, 338, 272.8, 89.2),
        (333, 343, 89.2, 89.2),
        (205, 471, 272.8, 272.8),
    ]


def test_a_step_keeps_its_height_until_the_next_point():
    points = [Point(0, 0), Point(5, 5), Point(10, 0)]
    places = [
        re.findall(r'points="([^"]+)"', chart(Series("a", points, "red", "dash", 0, step)).html()) for step in (0, 1)
    ]
    assert places[0] == ["72.0,334.0 338.0,28.0 604.0,334.0"]
    assert places[1] == ["72.0,334.0 338.0,334.0 338.0,28.0 604.0,28.0 604.0,334.0"]


def test_the_mouse_finds_points_of_a_line_without_markers():
    html = chart(Series("a", [Point(0, 0, "here"), Point(1, 1)], "red", "solid", marker=0)).html()
    assert html.count("<circle") == html.count('class="unseen"') == html.count("<title>here</title>") == 1


def test_a_bar_has_its_place_in_its_row():
    names = ("first", "second")
    bars = [Bar((0, 10), in_row(0), "long"), Bar((10, 10), in_row(1), "short", 0.7)]
    html = chart(Series("a", [], "red", bars=bars), y=Axis.of_rows(names), upright=[(10.0, "end")]).html()
    (long, short) = numbers(html, "x", "y", "width", "height")
    assert long == (12, 62.9, 592, 21) and short == (604, 104.9, 0.5, 21)
    assert 'opacity="0.7"' in html and "<title>short</title>" in html
    texts = dict(re.findall(r'y="([0-9.]+)" text-anchor="start">(\w+)<', html))
    assert texts == {"59.0": "first", "101.0": "second"}, "a name is above its bar"
    assert in_row(3, 1, 2) == (3.7, 3.95)


def test_lines_across_and_upright_have_their_texts():
    html = chart(Series("a", [], "red"), across=[(2.5, "limit")], upright=[(1, "early"), (9, "late")]).html()
    assert numbers(html, 'class="alone" x1', "x2", "y1", "y2") == [
        (72, 604, 181, 181),
        (125.2, 125.2, 28, 334),
        (550.8, 550.8, 28, 334),
    ]
    assert '<text x="600.0" y="176.0" text-anchor="end">limit' in html
    assert '<text x="131.2" y="326.0" text-anchor="start">early' in html
    assert '<text x="544.8" y="308.0" text-anchor="end">late' in html, "texts do not cover each other"
    assert html.rindex('class="grid"') < html.index('class="alone"')


def test_ticks_are_round_inside_and_apart():
    html = chart(Series("a", [], "red")).html()
    grid = numbers(html, 'class="grid" x1', "x2", "y1", "y2")
    assert [y for x, to, y, _ in grid if x != to] == pytest.approx([334 - 61.2 * step for step in range(6)])
    assert [x for x, to, *_ in grid if x == to] == pytest.approx([72 + 106.4 * step for step in range(6)])
    assert re.findall(r'text-anchor="middle">([0-9.]+)<', html) == ["0", "2", "4", "6", "8", "10"]
    assert re.findall(r'text-anchor="end">([0-9.]+)<', html) == ["0", "1", "2", "3", "4", "5"]
    few = Axis("", 0, 1, ticks=(0, 0.5, 0.55, 1, 2)).shown(0.1)
    assert few == [0, 0.5, 1]


@pytest.mark.parametrize(("values", "high"), [([4.0, 2.0], 4.2), ([0.0], 1), ([], 1)])
def test_an_axis_from_zero_cuts_nothing_and_is_never_empty(values, high):
    axis = Axis.from_zero("", values)
    assert (axis.low, axis.high) == (0, high)


def test_a_logarithmic_axis_has_room_around_its_values():
    axis = Axis.around("", [10, 1000])
    assert axis.part(100) == pytest.approx(0.5) and 0 < axis.part(10) < 0.1
    assert axis.shown(0.2) == [10, 30, 100, 300, 1000]


def test_a_key_tells_several_series_apart():
    one, two = (Series(name, [Point(1, 1)], colour) for name, colour in (("<a>", "red"), ("b", "blue")))
    assert 'class="key"' not in chart(one).html()
    assert 'background:blue"></span>b</li>' in chart(one, two).html() and "&lt;a&gt;" in chart(one, two).html()
    assert 'class="key"' not in chart(one, two, y=Axis.of_rows(["a", "b"])).html(), "the rows have the names"
    assert "named</li>" in chart(one, key=["named"]).html()
    assert "class=wide" in chart(one).html() and "class=wide" not in chart(one, width=420).html()
