"""The command line of `sluice sweep`."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from sluice_tools.bench import experiments
from sluice_tools.bench.needs import need_gpu
from sluice_tools.bench.results import Results
from sluice_tools.errors import EXIT_FAILED, EXIT_FINE, Parser, run_error, usage_error
from sluice_tools.command import need_packages, run_command
from sluice_tools.sweep import objective, plan

_EXAMPLES = """\
examples:
  sluice sweep exp_configs/replay/input_controlsync.json --model model_A \\
      --policy 'sync:{1,2,4,8,10,20,50,100,500,1000}' --duration 20 --out results/sweep
  sluice sweep exp.json --model A --policy 'device:{50,100,200,400}us' --repeats 3 \\
      --objective 'slowdown with p50 <= 1.1 and p99 <= 1.5' --out results/device

Called again with the same --out it goes on where it was stopped. Exit code 0; 1 a run failed;
2 wrong usage or packages missing.
"""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice sweep",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run an experiment under many values of one model's policy; write the table, the "
        "pictures and the best value.",
    )
    parser.add_argument("experiment", type=Path, metavar="EXPERIMENT.json")
    parser.add_argument(
        "--model",
        required=True,
        metavar="NAME",
        help="whose policy is swept: its output_file_name, the part after '_', or model_name",
    )
    parser.add_argument(
        "--policy",
        required=True,
        nargs="+",
        metavar="VALUES",
        help="for instance 'sync:{1,2,4,8}', or several policies",
    )
    parser.add_argument(
        "--duration",
        type=float,
        metavar="S",
        help="real seconds of a run (default: exp_dur of the experiment)",
    )
    parser.add_argument("--repeats", type=int, default=1, metavar="N")
    parser.add_argument(
        "--objective",
        default=objective.DEFAULT,
        metavar="TEXT",
        help=f"what the best value is (default: '{objective.DEFAULT}'): what to make "
        "smallest, and limits; words p50, p99, mean, slowdown, all × alone",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--gpu", choices=("auto", "real", "sim"), default="auto")
    parser.add_argument("--device", type=int, metavar="N", help="index of the GPU")
    return parser


class _Sweep:
    def __init__(self, options):
        self.out = options.out
        self.content = plan.read_experiment(options.experiment)
        self.policies = plan.values(options.policy)
        self.wanted = objective.parse(options.objective)
        swept = plan.pick(self.content, options.model)
        self.swept = swept["output_file_name"]
        self.critical = plan.critical(self.content, swept)["output_file_name"]
        self.repeats = options.repeats
        seconds = self.content.get("exp_dur") if options.duration is None else options.duration
        if not seconds or seconds <= 0 or self.repeats < 1:
            raise usage_error("--duration (or exp_dur) and --repeats must be above 0")
        device = self.content.get("device_id", 0) if options.device is None else options.device
        self.how = argparse.Namespace(
            sluice=os.environ["SLUICE_PROGRAM"], gpu=options.gpu, device=device, seconds=seconds
        )
        self._claim_folder()
        self.results = Results(self.out / "sweep.csv")
        self.key = {"part": self.swept, "mode": f"{options.gpu} {device}, {seconds:g} s"}

    def _claim_folder(self) -> None:
        """Rows of two experiments in one CSV would be compared as if they were one."""
        file = self.out / "experiment.json"
        text = json.dumps(self.content, indent=2)
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            if file.exists() and file.read_text() != text:
                raise usage_error(
                    f"{self.out} holds the sweep of another experiment; give another --out"
                )
            file.write_text(text)
        except OSError as error:
            raise usage_error(f"--out: cannot write {self.out}: {error.strerror}")

    def measure(self) -> bool:
        """All cells before the next repeat, so that a drift of the machine shows as range. False if
        a run failed."""
        todo = [
            (repeat, name, content)
            for repeat in range(1, self.repeats + 1)
            for name, content in plan.cells(self.content, self.swept, self.policies)
            if not self.results.has(*self.key.values(), name, repeat)
        ]
        if todo and self.how.gpu == "real":
            need_gpu(self.how.sluice, self.how.device, "--gpu sim takes the simulated one")
        fine, begun = True, time.monotonic()
        for index, (repeat, name, content) in enumerate(todo):
            left = (time.monotonic() - begun) / index * (len(todo) - index) if index else 0
            print(
                f"[{index + 1}/{len(todo)}] {name}, repeat {repeat}"
                + (f", about {left:.0f} s left" if index else ""),
                file=sys.stderr,
                flush=True,
            )
            folder = self.out / name.replace(" ", "-").replace(":", "-") / str(repeat)
            rows = self._try(name, lambda: experiments.run(self.how, folder, content))
            fine &= rows is not None
            if rows:
                self.results.add([{**self.key, "cell": name, "repeat": repeat, **row} for row in rows])
        return fine

    def _try(self, name: str, job):
        """What the job gives, or None where its run failed, which is said."""
        try:
            return job()
        except experiments.RunFailed as error:
            print(f"sluice sweep: {name}: {error}", file=sys.stderr)
            if error.code == 2:
                # So would every other run.
                raise usage_error("the experiment was refused, see the line above")
            return None

    def queue(self):
        """What is queued where nothing is paced, from a traced run, which is kept."""
        from sluice_tools.sweep import delay

        folder = self.out / "queue"
        if not (folder / "results.json").exists():
            print("what is queued: one traced run under gate", file=sys.stderr, flush=True)
            content = plan.together(self.content, self.swept, "gate")
            self._try(
                "queue", lambda: experiments.run_models(self.how, folder, content, "--trace")
            )
        if not (folder / "results.json").exists():
            return None
        return delay.measured_queue(folder, self.swept, self.critical)

    def rows(self) -> list:
        return [
            row for row in self.results.rows if (row["part"], row["mode"]) == tuple(self.key.values())
        ]


def _write(sweep: _Sweep, found) -> None:
    from sluice_tools.report import page, runs
    from sluice_tools.report.figures import of_kind
    from sluice_tools.sweep import figures, outcome

    run = runs.read_run(runs.find_runs([sweep.out])[0], "")
    shown = outcome.table(found)
    rows = [
        {
            "first": row[0].endswith("(best)"),
            "cells": [{"text": text, "none": text == "-"} for text in row],
        }
        for row in shown["rows"]
    ]
    caption = (
        "Median over the repeats and, in brackets, their range. × alone: times the model alone, without hooks."
        " predicted: by the delay model below."
    )
    groups = [
        ("JCT inflation", "", [figures.inflation(found, of_kind(run))], False),
        (
            "The published delay model",
            " ".join(found.model_text()),
            figures.delays(found, of_kind(run)),
            True,
        ),
    ]
    text = page.render(
        "sweep",
        f"Sluice sweep of {sweep.swept}",
        [(run.kind_text(), run.kind in ("simulated", "CPU"))],
        groups,
        heading="Which value is best?",
        answers=[("", found.answer()[0], [])],
        table={"head": shown["head"], "left": 1, "rows": rows, "caption": caption},
        closing=[] if found.predicted else found.model_text(),
    )
    try:
        page.write(sweep.out / "sweep.html", text)
        (sweep.out / "sweep.md").write_text(outcome.markdown(found, run.kind_text()))
    except OSError as error:
        raise run_error(f"cannot write {error.filename}: {error.strerror}")
    print(outcome.markdown(found, run.kind_text()), end="")
    print(f"page: {sweep.out / 'sweep.html'}")


def _sweep(options) -> int:
    need_packages("sweep", "numpy", "pandas", "plotly", "jinja2")
    from sluice_tools.sweep import outcome

    sweep = _Sweep(options)
    fine = sweep.measure()
    if not any(row["cell"] in sweep.policies for row in sweep.rows()):
        raise run_error("no run under any policy ended well; see the lines above")
    found = outcome.judge(
        sweep.rows(), sweep.swept, sweep.critical, sweep.policies, sweep.wanted, sweep.queue()
    )
    _write(sweep, found)
    return EXIT_FINE if fine else EXIT_FAILED


def main() -> int:
    options = _parser().parse_args()
    return run_command("sweep", lambda: _sweep(options))
