"""What Sluice costs a critical program that is alone: each case without and under Sluice, in turns.

usage: pairs.py SLUICE BIN ROUNDS CASE[:ARG]...     ROUNDS: 3 to 8 pairs
"""

import math
import re
import statistics
import subprocess
import sys

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
    if len(logs) < 3:
        continue
    m, s = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    t = {3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}[len(logs)]
    extra = (1 / statistics.median(b_all) - 1 / statistics.median(a_all)) * 1e6
    ratio, least, most = (math.exp(value) for value in (m, m - t * s, m + t * s))
    rates = f"without {statistics.median(a_all):.0f}/s, under {statistics.median(b_all):.0f}/s"
    print(f"{case}: {rates}, ratio {ratio:.3f} ({least:.3f} to {most:.3f}), {extra:+.2f} us each", flush=True)
