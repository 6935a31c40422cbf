"""What Sluice costs a program: each case without and under Sluice, in turns.

usage: pairs.py [--next-to] SLUICE BIN ROUNDS CASE[:STEPS]...     ROUNDS: 2 pairs or more

A critical program that is alone; with --next-to, a best-effort one next to a critical neighbour (the modes d and c).
"""

import contextlib
import math
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tools" / "python"))
from sluice_tools.measure.paired import compare

SPIN = Path(__file__).parents[3] / "build/libexec/sluice/sluice-example-spin"
NEIGHBOUR = [str(SPIN), "--kernels", "20", "--kernel-us", "100", "--period-ms", "6"]

next_to = sys.argv[1:2] == ["--next-to"]
sluice, binary, rounds, *cases = sys.argv[2 if next_to else 1 :]


def under(which, priority, command):
    """The command under Sluice in b, as it is in a."""
    return command if which == "a" else [sluice, "exec", "--priority", priority, "--", *command]


@contextlib.contextmanager
def neighbour(which, said):
    """A critical program beside, if asked for; its last line goes into `said`."""
    if not next_to:
        yield
        return
    process = subprocess.Popen(under(which, "1", NEIGHBOUR), stdout=subprocess.PIPE, text=True)
    time.sleep(1.5)
    try:
        yield
    finally:
        process.terminate()
        said[which] = (process.communicate(timeout=20)[0].splitlines() or [""])[-1]


def rate(which, program, said) -> float:
    """Steps a second; 0: the program failed."""
    with neighbour(which, said):
        command = under(which, "0" if next_to else "1", program)
        out = subprocess.run(command, capture_output=True, text=True, timeout=90)
    found = re.search(r"rate=([\d.]+)", out.stdout)
    return float(found.group(1)) if found else 0.0


for case in cases:
    program = [binary, *case.split(":")]
    logs, a_all, b_all, said = [], [], [], {}
    for i in range(int(rounds)):
        both = {which: rate(which, program, said) for which in ("ab", "ba")[i % 2]}
        if 0 in both.values():
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
    for which, line in sorted(said.items()):
        print(f"  the neighbour {'without' if which == 'a' else 'under'}: {line}", flush=True)
