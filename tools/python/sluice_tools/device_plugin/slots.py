"""What a resource has to give: some slots of each GPU. A slot is named GPU-UUID::NUMBER."""

import threading
from collections import Counter


def gpu_of(slot: str) -> str:
    return slot.rsplit("::", 1)[0]


def slots_of(gpu: str, count: int) -> list[str]:
    return [f"{gpu}::{number}" for number in range(count)]


def prefer(available: list[str], required: list[str], size: int) -> list[str]:
    """The slots that a container should get: of as many GPUs as possible, and of those that have most slots left."""
    chosen = list(required)
    left = [slot for slot in available if slot not in chosen]
    while len(chosen) < size and left:
        taken, free = Counter(map(gpu_of, chosen)), Counter(map(gpu_of, left))
        best = min(left, key=lambda slot: (taken[gpu_of(slot)], -free[gpu_of(slot)], slot))
        left.remove(best)
        chosen.append(best)
    return chosen


class Gpus:
    """The GPUs of the node, each with whether it can be used. A GPU that was there once is never forgotten: the
    kubelet must hear that it is gone."""

    def __init__(self):
        self._condition = threading.Condition()
        self._known: dict[str, bool] = {}

    def update(self, found: list[str]) -> None:
        with self._condition:
            known = {gpu: gpu in found for gpu in [*self._known, *found]}
            if known != self._known:
                self._known = known
                self._condition.notify_all()

    def wait_for_change(self, seen: dict[str, bool] | None, limit_s: float) -> dict[str, bool]:
        """The GPUs as they are now: at once if they differ from `seen`, else after `limit_s` at most."""
        with self._condition:
            self._condition.wait_for(lambda: self._known != seen, limit_s)
            return self._known
