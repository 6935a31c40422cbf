"""The command line of `sluice sweep`."""

import argparse
import contextlib
from pathlib import Path

from sluice_tools.common.command import need_packages, run_command
from sluice_tools.common.errors import Parser, run_error, usage_error
from sluice_tools.measure import answer_page, experiments, table
from sluice_tools.measure.needs import gpus
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, Cell, Rows, claim, output_folder
from sluice_tools.measure.sitting import Group, Sitting
from sluice_tools.sweep import objective, plan

_EXAMPLES = """\
examples:
  sluice sweep exp_configs/replay/input_controlsync.json --model model_A \\
      --policy 'sync:{1,2,4,8,10,20,50,100,500,1000}' --duration 300 --out results/sweep
  sluice sweep exp.json --model A --policy 'device:{50,100,200,400}us' --repeats 3 \\
      --objective 'slowdown with p50 <= 1.1 and p99 <= 1.5' --out results/device

Called again with the same --out it goes on where it was stopped. For programs of your own:
sluice compare. Exit codes: 0; 1 a run failed; 2 wrong usage or packages missing.
"""
_PACKAGES = ("numpy", "pandas")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice sweep",
        epilog=_EXAMPLES,
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
        "--duration", type=float, metavar="S", help="real seconds of a run (default: exp_dur of the experiment)"
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
    """What is swept, and how; checked before anything runs."""

    def __init__(self, options):
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
        self.how = experiments.How(experiments.sluice_program(), options.gpu, device, seconds)
        # Rows that were measured in another way are not compared.
        self.mode = f"{options.gpu} {device}, {seconds:g} s"

    def groups(self, folder: Path, rows: Rows) -> list[Group]:
        """All cells before the next repeat, so that a drift of the machine shows as range."""
        cells = plan.cells(self.content, self.swept, self.critical, self.policies)
        roles = {self.critical: CRITICAL, self.swept: BEST_EFFORT}

        def measure(cell: Cell) -> list:
            place = folder / cell.name.replace(" ", "-").replace(":", "-") / str(cell.repeat)
            try:
                measured = experiments.measure(self.how, place, dict(cells)[cell.name], roles)
            except experiments.RunFailed as error:
                if error.code == 2:  # so would every other run
                    raise usage_error(f"{cell.name}: {error}") from None
                raise
            self._check_gpu(measured, rows)
            return measured

        return [
            Group(
                [Cell(self.swept, self.mode, name, repeat, self.how.seconds)], lambda: contextlib.nullcontext(measure)
            )
            for repeat in range(1, self.repeats + 1)
            for name, _ in cells
        ]

    def _check_gpu(self, measured: list, rows: Rows) -> None:
        """Raises CommandError if the rows so far are of another GPU: `auto` may find another one than before."""
        gpu = measured[0]["gpu"]
        for row in self.own(rows.rows):
            if row["gpu"] != gpu:
                raise usage_error(f"this run was on {gpu}, those of {rows.file} on {row['gpu']}; give another --out")

    def own(self, rows: list) -> list:
        """The rows of this sweep, of all in its CSV."""
        return [row for row in rows if (row["subject"], row["mode"]) == (self.swept, self.mode)]

    def queue(self, folder: Path):
        """What is queued where nothing is paced, from a traced run, which is kept."""
        from sluice_tools.sweep import delay

        place = folder / "queue"
        if not (place / "results.json").exists():
            print("sluice sweep: one traced run under gate, to see what is queued", flush=True)
            try:
                experiments.run_models(self.how, place, plan.together(self.content, self.swept, "gate"), "--trace")
            except experiments.RunFailed as error:
                print(f"sluice sweep: queue: {error}", flush=True)
                return None
        return delay.measured_queue(place, self.swept, self.critical)


def _show(sweep: _Sweep, found, folder: Path, failures: list) -> None:
    from sluice_tools.report import runs
    from sluice_tools.sweep import figures, outcome

    run = runs.read_run(runs.find_runs([folder])[0], "")
    entries = list(found.entries.values())
    text = outcome.markdown(found, run.kind_text(), failures)
    print(text, end="", flush=True)  # first: the disk may be full
    (folder / "sweep.md").write_text(text)
    page = answer_page.render(
        "sweep",
        f"Sluice sweep of {sweep.swept}",
        [(run.kind_text(), run.kind in ("simulated", "CPU"))],
        [found.answer()],
        entries,
        notes=table.notes(entries),
        following=outcome.following(found),
        closing=failures + ([] if found.predicted else found.model_text()),
        more=[
            answer_page.Group("JCT inflation", figures.inflation(found, run.of_kind())),
            answer_page.Group("The delay model", figures.delays(found, run.of_kind()), " ".join(found.model_text())),
        ],
    )
    answer_page.write(folder / "sweep.html", page)
    print(f"page: {folder / 'sweep.html'}")


def _sweep(options) -> int:
    need_packages("sweep", *_PACKAGES)
    from sluice_tools.sweep import outcome

    sweep = _Sweep(options)
    with output_folder(options.out) as folder:
        claim(folder / "experiment.json", sweep.content, "the sweep of another experiment")
        rows = Rows(folder / "sweep.csv")
        sitting = Sitting("sluice sweep", rows, sweep.groups(folder, rows))
        if sitting.missing and options.gpu == "real":
            gpus(sweep.how.sluice, "real", sweep.how.device)
        result = sitting.run()
        mine = sweep.own(rows.rows)
        if not any(row["cell"] in sweep.policies for row in mine):
            raise run_error("no run under any policy ended well; see the lines above")
        queue = None if result.interrupted else sweep.queue(folder)
        found = outcome.judge(mine, sweep.swept, sweep.critical, sweep.policies, sweep.wanted, queue)
        _show(sweep, found, folder, table.failures(sweep.own(rows.errors)))
    return result.exit_code


def main() -> int:
    options = _parser().parse_args()
    return run_command("sweep", lambda: _sweep(options))
