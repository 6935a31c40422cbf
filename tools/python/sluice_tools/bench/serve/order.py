"""The part `order`: six schedulers, models of different length, load swept to overload."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from sluice_tools.bench.serve import order_report, plan, store
from sluice_tools.bench.serve.clients import Load, closed_loop, poisson, send
from sluice_tools.bench.serve.lines import Lines, machine_of, measure
from sluice_tools.bench.serve.server import Server, serving
from sluice_tools.bench.serve.setting import Setting
from sluice_tools.measure.rows import Cell
from sluice_tools.measure.sitting import CellError, Group

FILE = "order.jsonl"
ALONE, IN_BLOCKS = "alone", "in blocks"  # the cells that are measured before any load
_ALONE_S = 1.5  # of each model
_WARM_UP_S = 0.5  # before that, in parts of at least one request
_WARM_UPS = 3  # parts: the first two runs of a model in LibTorch take many times as long as the others
_DEADLINES = ("--admit-factor", "0", "--run-late", "--max-queue-mb", "65536")
_MODELS_MAY_OVERLAP = ("--scheduler", "PARALLER")  # at the start: models then do not share their workspace


def run(setting: Setting) -> int:
    lines = Lines(setting.out / FILE)
    return measure(setting, lines, [_group(setting, lines)], machine_of(setting), order_report.one_line)


def tables(folder: Path) -> list[str]:
    return order_report.tables(Lines(folder / FILE))


def _group(setting: Setting, lines: Lines) -> Group:
    models = plan.models_of(setting)
    searching = 2 * (setting.tiny or 10)
    cells: dict[Cell, tuple[str, float] | None] = {
        Cell(ALONE, "", "whole models", 1, (_WARM_UP_S + _ALONE_S) * len(models.names)): None,
        Cell(ALONE, "", IN_BLOCKS, 1, searching + 4 * (_WARM_UP_S + _ALONE_S)): None,
    }
    for repeat in range(1, setting.repeats + 1):
        for load in setting.loads or plan.LOADS:
            for scheduler in setting.schedulers or plan.SCHEDULERS:
                lasts = setting.seconds * max(1.0, load) + 0.5
                cells[Cell(f"load {load:g}", setting.law, scheduler, repeat, lasts)] = (scheduler, load)

    @contextlib.contextmanager
    def opened() -> Iterator:
        store.export(setting, list(models.names))
        with serving(setting, "order", plan.config(models), (*_DEADLINES, *_MODELS_MAY_OVERLAP)) as server:
            stage = _Stage(setting, lines, server, models)

            def measured(cell: Cell) -> list[dict]:
                if chosen := cells[cell]:
                    return stage.under_load(*chosen, cell.repeat)
                return stage.in_blocks() if cell.name == IN_BLOCKS else stage.alone()

            yield measured

    return Group(list(cells), opened)


class _Stage:
    """The server, with each model loaded once: whole, or in its blocks."""

    def __init__(self, setting: Setting, lines: Lines, server: Server, models: plan.Models):
        self._setting = setting
        self._lines = lines
        self._server = server
        self._models = models
        self._blocks: dict[str, int] = {}

    def alone(self) -> list[dict]:
        """A row for each whole model. service_ms: the time between two answers of one client with a request always
        waiting, so with the time in which a large request is sent and received."""
        return [self._alone(name, "FIFO") | {"model": name, "blocks": 1} for name in self._models.names]

    def in_blocks(self) -> list[dict]:
        """The same for each of the longest models in its blocks, run one by one, and run as one step."""
        self._arrange()
        rows = []
        for name, blocks in self._blocks.items():
            if blocks > 1:
                found = store.split(self._setting, name, blocks, self._models.batch)
                row = {
                    "model": name,
                    "blocks": blocks,
                    "searched_ms": found["ms"],
                    "searched_whole_ms": found["whole_ms"],
                }
                row |= self._alone(self._served(name), "OYST")
                row["together_ms"] = self._alone(self._served(name), "FIFO")["execute_ms"]
                rows.append(row)
        return rows

    def _alone(self, served: str, scheduler: str) -> dict:
        self._server.schedule(scheduler)
        for _ in range(_WARM_UPS):
            send(self._setting, self._server, [closed_loop(served, 1, _WARM_UP_S / _WARM_UPS, self._models.batch)])
        load = closed_loop(served, 2, _ALONE_S, self._models.batch)
        before = self._server.processor_s()
        with self._server.recording() as records:
            report = send(self._setting, self._server, [load])[served]
        answered = [record for record in records if record["result"] == "ok"]
        if not answered:
            raise CellError(f"{served} answered nothing")
        steps = zip(*(record["child_model_execute_cost_by_ms"] for record in answered))
        return {
            "requests": len(answered),
            "execute_ms": median(record["execute_cost"] for record in answered),
            "steps_ms": [median(step) for step in steps],
            "service_ms": 1e3 / report["throughput_per_s"],
            "receive_ms": median(_receive_ms(record) for record in answered),
            "processor_ms": 1e3 * (self._server.processor_s() - before) / len(answered),
        }

    def _alone_rows(self) -> dict[str, dict]:
        found = {row["model"]: row for row in self._lines.rows if row["subject"] == ALONE and row["blocks"] == 1}
        if set(found) != set(self._models.names):
            raise CellError("the whole models have not been measured")
        return found

    def _arrange(self) -> None:
        """Replaces the longest models by the same in blocks. Models that no request is for would change what DLIR
        does, so the whole ones are unloaded."""
        if self._blocks:
            return
        blocks = plan.blocks_of({name: row["execute_ms"] for name, row in self._alone_rows().items()})
        for name, count in blocks.items():
            if count > 1:
                store.split(self._setting, name, count, self._models.batch)
                self._server.load(plan.in_blocks(name, count))
                self._server.unload(name)
        self._blocks = blocks

    def _served(self, name: str) -> str:
        return plan.in_blocks(name, self._blocks[name]) if self._blocks[name] > 1 else name

    def under_load(self, scheduler: str, load: float, repeat: int) -> list[dict]:
        """A row for each model. All schedulers get the same arrivals in the same repeat of a load."""
        self._arrange()
        alone = self._alone_rows()
        gap_ms = plan.gap_ms([row["execute_ms"] for row in alone.values()], load)
        loads = []
        for index, name in enumerate(self._models.names):
            # The server counts from the headers, the response ratio from the complete request.
            slo_ms = plan.SLO * alone[name]["execute_ms"] + alone[name]["receive_ms"]
            arrivals = (gap_ms, self._setting.seconds, 1000 * repeat + index, self._models.batch, self._setting.law)
            loads.append(poisson(self._served(name), *arrivals, "--slo-ms", f"{slo_ms:.3f}"))
        self._server.schedule(scheduler)
        return self._send(loads, alone, gap_ms)

    def _send(self, loads: list[Load], alone: dict, gap_ms: float) -> list[dict]:
        before = self._server.processor_s()
        with self._server.recording() as records:
            reports = send(self._setting, self._server, loads)
        shared = {
            "gap_ms": gap_ms,
            "seconds": self._setting.seconds,
            "busy": busy_share(records),
            "processor_s": self._server.processor_s() - before,
        }
        rows = []
        for name in self._models.names:
            report = reports[self._served(name)]
            own = [record for record in records if record["model_name"] == self._served(name)]
            rows.append(
                {"model": name, "blocks": self._blocks[name], "limit_ms": alone[name]["execute_ms"], **shared}
                | _figures(own, report)
            )
        return rows


def _receive_ms(record: dict) -> float:
    return record["queued_time"] - record["recv_time"]


def _figures(records: list[dict], report: dict) -> dict:
    """latency_ms: of each answered request, from the complete request to its answer."""
    answered = [record for record in records if record["result"] == "ok"]
    return {
        "latency_ms": [round(record["finish_time"] - record["queued_time"], 3) for record in answered],
        "receive_ms": [round(_receive_ms(record), 3) for record in answered],
        "other_results": sorted(record["result"] for record in records if record["result"] != "ok"),
        "sent": report["sent"],
        "lost": report["not_sent"] + report["unanswered"] + report["sent"] - report["answered"],
        "client_p50_ms": report["latency_ms"].get("p50"),
        "client_p99_ms": report["latency_ms"].get("p99"),
        "send_lag_p99_ms": report["send_lag_ms"]["p99"],
    }


def busy_share(records: list[dict]) -> float:
    """The share of the time from the first complete request to the last answer in which a step ran."""
    runs = sorted(run for record in records for run in record["child_model_run_time"])
    if not runs:
        return 0.0
    busy, end = 0.0, float("-inf")
    for begins, ends in runs:
        busy += max(0.0, ends - max(begins, end))
        end = max(end, ends)
    begin = min(record["queued_time"] for record in records)
    return busy / (max(record["finish_time"] for record in records) - begin)
