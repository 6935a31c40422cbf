"""pairs.md: for each pair and mode, a row per policy; then which goals are met."""

from sluice_tools.bench.pairs.plan import BEST_EFFORT, CRITICAL
from sluice_tools.bench.pairs.summary import goals, middle

_HEAD = ("policy", "n", "critical p50 ms", "x alone", "p99 ms", "x alone", "best effort, of alone",
         "of ideal")
_LEGEND = """\
Median over the repeats and, in brackets, their range. `x alone` is against the critical program alone
in the same mode, with the best-effort program loaded and idle. `of alone` is the best-effort speed
against its own alone in the same mode under `none`; `of ideal` is that against the share of time in
which no critical job was active (more than 100 %: best effort also ran beside the jobs; -: a job was
active for more than 90 % of the time). * fewer than 300 jobs: the maximum stands in place of p99. † the
critical program did not keep up, and so many jobs were dropped.
"""
_MARKS = {True: "met", False: "**not met**", None: "not measured"}


def spread(values: list, form: str) -> str:
    if not values:
        return "-"
    text = format(middle(values), form)
    if len(values) > 1:
        text += f" [{format(min(values), form)}-{format(max(values), form)}]"
    return text


def _line(entry: dict) -> str:
    name = f"`{entry['cell']}`{entry['name'].removeprefix(entry['cell'])}"
    if entry["dropped"]:
        name += f" † {entry['dropped']}"
    jobs = "-".join(str(n) for n in sorted({min(entry["n"]), max(entry["n"])})) if entry["n"] else "-"
    p99 = spread(entry["p99_ms"], ".3f") + ("*" if entry["p99_is_max"] and entry["p99_ms"] else "")
    return "| " + " | ".join((
        name, jobs, spread(entry["p50_ms"], ".3f"), spread(entry["p50_x"], ".3f"), p99,
        spread(entry["p99_x"], ".3f"), spread(entry["share"], ".1%"),
        spread(entry["of_ideal"], ".1%"))) + " |\n"


def _machines(rows: list) -> str:
    """What the rows were measured on; usually one line."""
    named = ("gpu", "driver", "torch", "sluice")
    found = dict.fromkeys(tuple(row[name] for name in named) for row in rows)
    days = sorted({row["date"][:10] for row in rows})
    text = "".join(f"{gpu}, driver {driver or '-'}, PyTorch {torch}, Sluice {sluice}\n"
                   for gpu, driver, torch, sluice in found)
    return text + f"{days[0]}{' to ' + days[-1] if len(days) > 1 else ''}\n" if days else text


def table(rows: list, errors: list, entries: list) -> str:
    """entries: summary(rows)."""
    text = "# Pairs\n\n" + _machines(rows) + "\n" + _LEGEND
    for pair in dict.fromkeys(entry["pair"] for entry in entries):
        critical, best_effort = pair.split("+")
        text += f"\n## {pair}\nCritical: {CRITICAL[critical]}. "
        text += f"Best effort: {BEST_EFFORT[best_effort]}.\n"
        own = [entry for entry in entries if entry["pair"] == pair]
        for mode in dict.fromkeys(entry["mode"] for entry in own):
            text += f"\n**{mode}**\n\n| {' | '.join(_HEAD)} |\n{'| --- ' * len(_HEAD)}|\n"
            text += "".join(_line(entry) for entry in own if entry["mode"] == mode)
        text += "\n"
        for goal in goals(pair, entries):
            seen = f" ({goal['seen']})" if goal["seen"] else ""
            text += f"- {_MARKS[goal['met']]}: {goal['goal']}{seen}\n"
    if errors:
        text += "\n## Not measured\n"
        text += "".join(f"- {row['pair']}, {row['mode']}, `{row['cell']}`: {row['error']}\n"
                        for row in errors)
    return text
