"""What all programs share: the line that run.py reads, and a time limit against hangs of their own."""

import hashlib
import time


def report(text, steps, seconds, note=""):
    """`text`: whatever must be the same in every run."""
    print(f"sum={hashlib.sha1(str(text).encode()).hexdigest()[:16]} rate={steps / seconds:.3f} {note}", flush=True)


def clock():
    return time.monotonic()


def rounded(value, digits=3):
    """A number of few digits, so that the order of additions does not matter."""
    return f"{float(value):.{digits}g}"
