"""What the runs of a program mean, and the lines about it."""

from __future__ import annotations

import re

from cases import Program
from measure import SLOW_ALONE, SLOW_NEXT_TO, Measured


def verdict(program: Program, measured: Measured, speeds: bool) -> dict:
    """The line of results.jsonl."""
    r, neighbours = measured.runs, measured.neighbours
    findings = [("MINE", measured.mine)] if measured.mine else faults(program, measured)
    if not speeds:
        findings = [(word, reason) for word, reason in findings if word != "SLOW"]
    said = {re.sub(r"^sluice\[\d+\]: ", "", line) for m in ("b", "c") if m in r for line in r[m].said}
    return {
        "program": program.name,
        "words": sorted({word for word, _ in findings if word}) or ["PASS"],
        "reasons": [reason for _, reason in findings],
        "known": program.known,
        "slow": program.slow,
        "said": sorted(said),
        "neighbours": neighbours,
        "runs": {
            m: {"rate": x.rate, "wall": round(x.wall, 2), "rc": x.rc, "sum": x.sum, "note": x.note}
            for m, x in r.items()
        },
    }


def faults(program: Program, measured: Measured) -> list[tuple[str, str]]:
    """Words and their reasons."""
    r = measured.runs
    a, b = r["a"], r["b"]
    c, d = r.get("c"), r.get("d")
    found = []
    for mode, x in (("b", b), ("c", c)):
        if x is None:
            continue
        if mode == "c" and d and not d.fine:
            found.append(("", f"d (without Sluice, next to the neighbour) fails, too: {d.why}"))
        elif x.hung:
            others = "/".join(f"{m} {r[m].wall:.1f} s" for m in r if m not in "bc")
            found.append(("HANG", f"{mode} hangs ({x.wall:.0f} s; {others})"))
        elif not x.fine:
            found.append(("CRASH", f"{mode}: {x.why}"))
        elif program.compare and x.sum != a.sum:
            found.append(("DIFFERS", f"{mode}: {x.sum} {x.note} instead of {a.sum} {a.note}"))
    if b.fine and b.rate < SLOW_ALONE * a.rate:
        found.append(("SLOW", f"b has {b.rate / a.rate:.2f} of a's rate"))
    if b.fine and b.wall > 1.3 * a.wall + 2:
        found.append(("SLOW", f"b takes {b.wall:.1f} s from start to end, a {a.wall:.1f} s"))
    if c and d and c.fine and d.fine and c.rate < SLOW_NEXT_TO * d.rate:
        found.append(("SLOW", f"c has {c.rate / d.rate:.2f} of d's rate"))
    for mode, said in measured.neighbours.items():
        if said.startswith("THE NEIGHBOUR"):
            found.append(("NEIGHBOUR", f"{mode}: {said}"))
    return found


def show(line: dict, seconds: float) -> str:
    """The line of a program for people, and those below it."""
    runs, words = line["runs"], "+".join(line["words"])
    rates = " ".join(f"{m}={x['rate']:.5g}" for m, x in runs.items())
    for of, to in ("ba", "cd"):
        if of in runs and to in runs and runs[to]["rate"]:
            rates += f" {of}/{to}={runs[of]['rate'] / runs[to]['rate']:.2f}"
    notes = " ".join(sorted({x["note"] for x in runs.values() if x["note"]}))
    below = list(line["reasons"])
    if words != "PASS" and line["known"]:
        below.append(f"known: {line['known']}")
    if "SLOW" in line["words"] and line["slow"]:
        below.append(f"why: {line['slow']}")
    below += [f"said: {said[:200]}" for said in line["said"][:4]]
    for mode, said in line["neighbours"].items():
        latency = re.search(r"p50 \S+ ms, p99 \S+ ms", said)
        if latency and words != "PASS":
            below.append(f"neighbour in {mode}: {latency.group(0)}")
    return "\n           ".join([f"{words:8} {line['program']:16} {rates} [{seconds:.0f} s] {notes}", *below])
