"""What `sluice predict` wrote into a folder."""

import csv
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from sluice_tools.common.errors import usage_error


@dataclass
class Evaluation:
    """A model on the programs that it was tested with."""

    label: str
    names: list[str] = field(default_factory=list)  # of the operators, one for each program
    measured_s: list[float] = field(default_factory=list)
    predicted_s: list[float] = field(default_factory=list)
    curve: list[tuple[float, float]] = field(default_factory=list)  # seconds of training, MAPE
    metrics: dict[str, str] = field(default_factory=dict)  # the last line of metrics.csv, if there is one

    def errors(self) -> list[float]:
        return [abs(p - m) / m for m, p in zip(self.measured_s, self.predicted_s)]

    def mape(self) -> float:
        return statistics.fmean(self.errors())


def kind_of(task: str) -> str:
    """The operators of a task without their numbers: conv2d_add_relu of fused_conv2d9_add7_relu1."""
    return "_".join(part.rstrip("0123456789") for part in task.removeprefix("fused_").split("_"))


def _lines(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def read(folder: Path) -> Evaluation:
    """Raises CommandError if the folder has no predictions, or ones that cannot be understood."""
    file = folder / "predictions.csv"
    if not file.exists():
        raise usage_error(f"{folder} has no predictions.csv; `sluice predict train` or `run` writes it")
    found = Evaluation(label=folder.name)
    try:
        for line in _lines(file):
            found.names.append(line["name"])
            found.measured_s.append(float(line["measured_s"]))
            found.predicted_s.append(float(line["predicted_s"]))
        if (folder / "loss.csv").exists():
            found.curve = [
                (float(line["seconds"]), float(line["test_mape"]))
                for line in _lines(folder / "loss.csv")
                if line["test_mape"]
            ]
        if (folder / "metrics.csv").exists():
            found.metrics = (_lines(folder / "metrics.csv") or [{}])[-1]
    except (KeyError, ValueError, TypeError) as error:
        raise usage_error(f"{folder}: not what `sluice predict` writes: {error}") from error
    if not found.names:
        raise usage_error(f"{file} has no predictions")
    return found


def unique_labels(found: list[Evaluation], folders: list[Path]) -> None:
    """Folders of one name are told apart by the folder around them."""
    names = [folder.name for folder in folders]
    for one, folder in zip(found, folders):
        if names.count(folder.name) > 1:
            one.label = f"{folder.resolve().parent.name}/{folder.name}"
