"""Prints findings.jsonl as a table, in the order of the experiments.

table.py FINDINGS.JSONL
"""

import json
import sys


def text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def main() -> None:
    with open(sys.argv[1]) as lines:
        findings = [json.loads(line) for line in lines if line.startswith("{")]
    findings.sort(key=lambda one: one["experiment"])  # Stable.
    width = max((len(one["what"]) for one in findings), default=0)
    for one in findings:
        values = ", ".join(f"{name} {text(v)}" for name, v in one.items() if name not in ("experiment", "what"))
        print(f"{one['experiment']}  {one['what']:{width}}  {values}")


if __name__ == "__main__":
    main()
