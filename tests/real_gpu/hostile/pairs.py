"""What Sluice costs a critical program that is alone: each case without and under Sluice, in turns.

usage: pairs.py SLUICE BIN ROUNDS CASE[:ARG]...     ROUNDS: 2 pairs or more
"""

import math
import re
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tools" / "python"))
from sluice_tools.measure.paired import compare

sluice, binary, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])


def rate(command):
    out = subprocess.run(command, capture_output=True, text=True, timeout=60)
    found = re.search(r"rate=([\d.]+)", out.stdout)
    return float(found.group(1)) if found else None


for case in sys.argv[4:]:
    program = [binary, *case.split(":")]
    logs, a_all, b_all = [], [], []
    for i in range(rounds):
        both = {}
        for which in ("ab", "ba")[i % 2]:
            both[which] = rate(program if which == "a" else [sluice, "exec", "--priority", "1", "--", *program])
        if None in both.values():
            print(case, "failed", both)
            break
        logs.append(math.log(both["b"] / both["a"]))
        a_all.append(both["a"])
        b_all.append(both["b"])
    paired = compare(logs)
    if paired is None:
        continue
    extra = (1 / statistics.median(b_all) - 1 / statistics.median(a_all)) * 1e6
    ratio, least, most = (math.exp(value) for value in (paired.mean, paired.low, paired.high))
    rates = f"without {statistics.median(a_all):.0f}/s, under {statistics.median(b_all):.0f}/s"
    print(f"{case}: {rates}, ratio {ratio:.3f} ({least:.3f} to {most:.3f}), {extra:+.2f} us each", flush=True)
