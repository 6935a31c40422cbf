"""What the slowest request was waiting for: its time cut by the steps of all requests, and said in words."""

import itertools
from dataclasses import dataclass, field
from statistics import median

from sluice_tools.records.reader import Request, Sitting
from sluice_tools.report.texts import milliseconds

_MUCH = 0.03  # of the whole time: what is less needs no sentence of its own


@dataclass(frozen=True)
class Step:
    """One block, or the whole model, as the device ran it; requests of a batch share it."""

    begin: float
    end: float
    model: str


@dataclass
class Waited:
    """For the steps of one model."""

    ms: float = 0.0
    steps: set = field(default_factory=set)


@dataclass
class Breakdown:
    """Of one request; all in ms. What is neither waited for nor its own is unexplained."""

    request: Request
    before: dict = field(default_factory=dict)  # Waited by model, until its first step
    between: dict = field(default_factory=dict)  # Waited by model, between its steps
    own: float = 0.0
    shared: float = 0.0  # part of its own steps in which others ran too
    preemptions: int = 0  # pauses between its steps in which others ran

    @property
    def same_model(self) -> float:
        return sum(waited.ms for model, waited in self.before.items() if model == self.request.model)

    @property
    def other_models(self) -> float:
        return sum(waited.ms for model, waited in self.before.items() if model != self.request.model)

    @property
    def preempted(self) -> float:
        return sum(waited.ms for waited in self.between.values())

    @property
    def unexplained(self) -> float:
        return max(0.0, self.request.total - self.own - self.same_model - self.other_models - self.preempted)


def slowest(sitting: Sitting) -> Request | None:
    """Of unlike models, slow is against the limit."""
    return max(sitting.answered, key=lambda request: request.total / request.limit, default=None)


def steps_of(requests: list) -> set:
    return {Step(begin, end, request.model) for request in requests for begin, end in request.steps}


def break_down(request: Request, sitting: Sitting) -> Breakdown:
    found = Breakdown(request)
    own = [Step(begin, end, request.model) for begin, end in sorted(request.steps)]
    near = [one for one in sitting.requests if one.arrived < request.ended and one.ended > request.arrived]
    others = steps_of(near) - set(own)
    reached = request.arrived
    for number, step in enumerate(own):
        into = found.between if number else found.before
        waited = _covered(reached, step.begin, others, request.model, into)
        found.preemptions += number > 0 and waited > 0
        found.own += step.end - max(step.begin, reached)
        found.shared += _covered(step.begin, step.end, others, request.model, {})
        reached = max(reached, step.end)
    return found


def _covered(begin: float, end: float, steps: set, own_model: str, into: dict) -> float:
    """ms of the window in which a step ran, shared out by model: of several at once, its own model's, else the
    one that began first."""
    inside = [step for step in steps if step.begin < end and step.end > begin]
    edges = sorted({begin, end, *(edge for step in inside for edge in (step.begin, step.end) if begin < edge < end)})
    inside.sort(key=lambda step: step.begin)
    running: list[Step] = []
    total, place = 0.0, 0
    for first, last in itertools.pairwise(edges):
        while place < len(inside) and inside[place].begin <= first:
            running.append(inside[place])
            place += 1
        running = [step for step in running if step.end > first]
        if running:
            cause = min(running, key=lambda step: (step.model != own_model, step.begin))
            waited = into.setdefault(cause.model, Waited())
            waited.ms += last - first
            waited.steps.add(cause)
            total += last - first
    return total


def explain(sitting: Sitting) -> tuple[str, list]:
    """The answer in a sentence, and what there is to add."""
    request = slowest(sitting)
    if request is None:
        return "No request was answered.", []
    found = break_down(request, sitting)
    return _head(found, sitting), _details(found)


def _ms(ms: float) -> str:
    return milliseconds(ms * 1e6)


def _head(found: Breakdown, sitting: Sitting) -> str:
    request = found.request
    number = sitting.requests.index(request) + 1
    name = f" ({request.id[:40]})" if request.id else ""
    usual = median(one.total for one in sitting.answered if one.model == request.model)
    waits = [
        (found.other_models, "behind other models"),
        (found.same_model, "behind requests of its own model"),
        (found.preempted, "preempted between its blocks"),
    ]
    parts = [f"{_ms(ms)} {where}" for ms, where in waits if ms > 0]
    parts += [f"{_ms(found.unexplained)} unexplained", f"{_ms(found.own)} in its own steps"]
    return (
        f"Request {number}{name} of {request.model} took {_ms(request.total)}, {request.total / request.limit:.1f} "
        f"times the limit of {_ms(request.limit)} (median {_ms(usual)}): {', '.join(parts[:-1])} and {parts[-1]}."
    )


def _details(found: Breakdown) -> list:
    request, much = found.request, _MUCH * found.request.total
    texts = [_before(found)]
    if found.preemptions:
        times = f"{_count(found.preemptions, 'time')} between its {len(request.steps)} steps"
        texts.append(f"It was preempted {times}, by {_steps(found.between)}.")
    if found.unexplained > much:
        why = "the request was read, its batch filled, or the server and its client were busy"
        if request.train_wait > much:
            why = f"its batch waited {_ms(request.train_wait)} for training to leave"
        texts.append(f"For {_ms(found.unexplained)} no step ran: {why}.")
    if found.own - request.limit > much:
        texts.append(_own_steps(found))
    return texts


def _before(found: Breakdown) -> str:
    if not found.before:
        return "No other step ran between its arrival and its first step."
    steps = [step for waited in found.before.values() for step in waited.steps]
    begun = sum(step.begin < found.request.arrived for step in steps)
    already = f"; {_count(begun, 'step')} had begun before it arrived" if begun else ""
    return f"{_steps(found.before)} ran between its arrival and its first step{already}."


def _own_steps(found: Breakdown) -> str:
    request = found.request
    causes = [f"its execution had {request.batch} items"] if request.batch > 1 else []
    if found.shared > 0:
        causes.append(f"steps of other requests ran at the same time for {_ms(found.shared)}")
    if not causes:
        causes.append("the device was shared, or slower than when the limit was measured")
    return f"Its own steps took {_ms(found.own - request.limit)} longer than the limit: {', and '.join(causes)}."


def _steps(by_model: dict) -> str:
    longest = sorted(by_model.items(), key=lambda item: -item[1].ms)
    parts = [f"{_count(len(waited.steps), 'step')} of {model} for {_ms(waited.ms)}" for model, waited in longest]
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
