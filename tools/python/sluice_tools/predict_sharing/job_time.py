"""The time of a job at a batch size that was not measured."""

from collections.abc import Mapping


def between(times: Mapping[int, float], batch: int) -> tuple[float, str]:
    """Time by batch size -> the time at `batch`, and where that comes from.

    Linear between two measured sizes. GPU time grows in no smaller steps than the batch once the GPU is full, and
    hardly before, so the line is at or above the truth: an admission that believes it is not late. Below the
    smallest size, its time; above the largest, the line through the last two sizes.
    """
    sizes = sorted(times)
    if batch in times:
        return times[batch], "measured"
    if batch < sizes[0]:
        return times[sizes[0]], f"that of {sizes[0]}"
    beyond = batch > sizes[-1]
    low = sizes[-2] if beyond else max(size for size in sizes if size < batch)
    high = sizes[-1] if beyond else min(size for size in sizes if size > batch)
    slope = (times[high] - times[low]) / (high - low)
    if beyond:
        return times[high] + max(0.0, slope) * (batch - high), f"beyond {high}"
    return times[low] + slope * (batch - low), f"between {low} and {high}"


def left_out(times: Mapping[int, float]) -> dict[int, float]:
    """For each size but the smallest and the largest: predicted from the others, over measured, minus 1."""
    return {
        size: between({other: time for other, time in times.items() if other != size}, size)[0] / times[size] - 1
        for size in sorted(times)[1:-1]
    }
