"""Which job of a run is explained, and how: from the trace, or else from the job logs."""

from dataclasses import dataclass, field
from statistics import median

from sluice_tools.report import targets
from sluice_tools.report.texts import milliseconds

HOW = "Only a trace tells what the GPU did meanwhile: sluice run ... --trace."


@dataclass
class Answer:
    model: object = None
    job: int = 0  # from 1, as in the page's figures; the warm-up is not counted
    text: list = field(default_factory=list)
    client: object = None  # of the trace
    begin_ns: int = 0  # CLOCK_MONOTONIC with a client, else CLOCK_REALTIME
    end_ns: int = 0
    closed_ns: int | None = None  # when the gates below closed; the end if never; None without a client

    def line(self) -> str:
        return " ".join(self.text)


def explain(run) -> Answer:
    model = _slowest(run)
    if model is None:
        return Answer(text=["No job of a critical model ended."])
    job = model.jct_ms.index(max(model.jct_ms))
    answer = Answer(model, job + 1, [_head(model, job)], begin_ns=model.start_ns[job], end_ns=model.end_ns[job])
    client = next((one for one in run.trace if one.pid == model.pid), None)
    if client is None or not _from_trace(answer, model, job, client, run):
        answer.text += _from_logs(model, job, run)
    return answer


def _slowest(run):
    """The critical model with the slowest job; of unlike models, slow is against its own median."""
    models = [model for model in run.critical() if model.jobs]
    return max(models, key=lambda m: max(m.jct_ms) / median(m.jct_ms), default=None)


def _head(model, job: int) -> str:
    jct, usual = model.jct_ms[job] * 1e6, median(model.jct_ms) * 1e6
    text = f"Job {job + 1} of {model.log} took {milliseconds(jct)}"
    if model.jobs < 2:
        return text + ", and is its only job."
    text += f" against a median of {milliseconds(usual)}."
    if jct < 1.05 * usual:
        text += " It is the slowest, and no job stands out."
    return text


def _traced_job(model, job: int, client) -> tuple[int, int, int] | None:
    """Begin and end of the job in the trace, and when the gates closed: of that which overlaps its stamps most."""
    if not len(client.jobs) or client.clock is None:
        return None
    begin = int(client.clock.to_monotonic(model.start_ns[job]))
    end = begin + model.end_ns[job] - model.start_ns[job]
    shared = client.jobs.end.clip(max=end) - client.jobs.begin.clip(min=begin)
    best = int(shared.argmax())
    if shared[best] < 0.5 * (end - begin):
        return None
    return int(client.jobs.begin[best]), int(client.jobs.end[best]), int(client.jobs["closed"][best])


def _from_trace(answer: Answer, model, job: int, client, run) -> bool:
    place = _traced_job(model, job, client)
    if place is None:
        run.notes.append(f"Job {job + 1} of {model.log} is not in the trace.")
        return False
    answer.client, (answer.begin_ns, answer.end_ns, answer.closed_ns) = client, place
    answer.text += targets.open_gates(place, model.target, run.scale)
    others = [other for other in run.trace if other is not client]
    if not client.has_execs:
        return False
    from sluice_tools.report import waiting  # needs numpy, as every trace does

    worst = waiting.break_down(*place[:2], client, others, place[2])
    middle = sorted(range(model.jobs), key=model.jct_ms.__getitem__)[(model.jobs - 1) // 2]
    usual_place = _traced_job(model, middle, client) if middle != job else None
    usual = waiting.break_down(*usual_place[:2], client, others, usual_place[2]) if usual_place else None
    names = {other.pid: other.label for other in run.trace}
    answer.text += waiting.sentences(worst, usual, names, run.scale)
    return True


def _from_logs(model, job: int, run) -> list:
    """Which jobs of the others ran at the time."""
    begin, end = model.start_ns[job], model.end_ns[job]
    texts = []
    for other in run.models:
        if other is model or not other.jobs:
            continue
        beside = sorted(start for start, stop in zip(other.start_ns, other.end_ns) if stop > begin and start < end)
        if not beside:
            texts.append(
                f"The log of {other.log} ends before: a job that the end of the run cut off is not in it."
                if begin >= max(other.end_ns)
                else f"No job of {other.log} ran at the time."
            )
            continue
        many = len(beside) > 1
        before = "the first of which had begun" if many else "which had begun"
        texts.append(
            (f"{len(beside)} jobs" if many else "A job")
            + f" of {other.log} ran at the time"
            + (f", {before} {_ms(run, other, begin - beside[0])} before it." if beside[0] < begin else ".")
        )
    return [*texts, HOW] if not run.trace else texts


def _ms(run, model, ns: int) -> str:
    return milliseconds(ns / (1.0 if model.on_cpu else run.scale))
