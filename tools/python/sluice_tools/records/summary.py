"""The figures of a scheduler: latency, response ratio, and which promises were broken."""

from sluice_tools.measure.statistics import ENOUGH_FOR_P99, percentile
from sluice_tools.records.analysis import TOTAL, statistic
from sluice_tools.records.reader import OK, Sitting

# What a request without an answer is called, by its result. All other results count as failed.
_WITHOUT_ANSWER = {"resource_exhausted": "refused", "deadline_exceeded": "expired", "cancelled": "cancelled"}


def rows(sitting: Sitting) -> list[dict]:
    """A row for each model and, of several, one for all; None where a figure does not exist."""
    by_model: dict[str, list] = {model: [] for model in sitting.models}
    for request in sitting.requests:
        by_model[request.model].append(request)
    found = [_row(model, requests) for model, requests in by_model.items()]
    return [*found, _row(TOTAL, sitting.requests)] if len(found) > 1 else found


def _row(name: str, requests: list) -> dict:
    answered = [request for request in requests if request.result == OK]
    results = [OK if r.result == OK else _WITHOUT_ANSWER.get(r.result, "failed") for r in requests]
    latencies = [request.total for request in answered]
    ratios = [request.ratio for request in answered]
    return {
        "model": name,
        "requests": len(requests),
        **{kind: results.count(kind) for kind in (OK, "refused", "expired", "cancelled", "failed")},
        "p50_ms": percentile(latencies, 0.5),
        "p99_ms": percentile(latencies, 0.99) if len(answered) >= ENOUGH_FOR_P99 else None,
        "max_ms": max(latencies, default=None),
        **{f"ratio_{key}": value for key, value in statistic(ratios).items()},
        "above_2x": sum(ratio > 2 for ratio in ratios),
        "above_4x": sum(ratio > 4 for ratio in ratios),
        "with_deadline": sum(request.deadline is not None for request in requests),
        "late": sum(request.deadline is not None and request.total > request.deadline for request in answered),
    }
