"""Prints the results of an experiment, one line of JSON each; README.md explains the fields."""

import json
import statistics
import sys
import time

_BEGIN = time.monotonic()


def finding(experiment: str, what: str, **values: object) -> None:
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}
    print(json.dumps({"experiment": experiment, "what": what} | rounded), flush=True)


def progress(text: str) -> None:
    """Writes a line to stderr, with the seconds since this process began."""
    print(f"{time.monotonic() - _BEGIN:6.1f} s  {text}", file=sys.stderr, flush=True)


def spread(name: str, values: list[float]) -> dict[str, float]:
    """The median, the 99th percentile and the maximum of the values, under names that begin with `name`."""
    if not values:
        return {}
    high = statistics.quantiles(values if len(values) > 1 else values * 2, n=100, method="inclusive")[98]
    return {f"{name}_p50": statistics.median(values), f"{name}_p99": high, f"{name}_max": max(values)}
