"""Where the kernels of a parse come from: a CSV, or a run of ours."""

from pathlib import Path

import numpy as np
import pandas as pd

from sluice_tools.common.errors import usage_error
from sluice_tools.common.progress import counted
from sluice_tools.parse.kernel_csv import KernelCsv
from sluice_tools.parse.models import Models
from sluice_tools.trace.kernel_table import require_executions, sorted_rows
from sluice_tools.trace.reader import Run, read_models_pid, read_run


class Source:
    """Where kernels come from, and the logs of their models."""

    def __init__(self, path: Path, pids: Path | None):
        self.simulated = False
        self._csv: KernelCsv | None = None
        self._run: Run | None = None
        if path.is_dir():
            self._run = read_run(path)
            self.name = self._run.folder.name
            self.simulated = any(client.simulated for client in self._run.clients)
            models = read_models_pid(pids) if pids else self._run.models
            self.near = self._run.folder
        else:
            self._csv = KernelCsv(path)
            self.name = path.name
            pids = pids or self._beside(path)
            models = read_models_pid(pids)
            self.near = pids.parent
        if models is None:
            raise usage_error(f"cannot read {pids}: no such file")
        self.models = models

    @staticmethod
    def _beside(path: Path) -> Path:
        for folder in (path.parent, path.parent.parent, Path()):
            if (folder / "models_pid.json").exists():
                return folder / "models_pid.json"
        raise usage_error(f"no models_pid.json next to {path} or here; name it with -p")

    def feed(self, models: Models) -> None:
        if self._csv is not None:
            for chunk in counted("reading", self._csv.rows_about, self._csv.chunks()):
                models.add(chunk)
        elif self._run is not None:
            for client in require_executions(self._run):
                for rows in sorted_rows([client], self._run.begin_ns):
                    models.add(
                        pd.DataFrame(
                            {
                                "API Start": rows["start"],
                                "API Dur": rows["api"],
                                "Kernel Start": rows["kernel_start"],
                                "Kernel Dur": rows["kernel"],
                                "PID": np.int64(client.pid),
                            }
                        )
                    )

    @property
    def rows_left_out(self) -> int:
        return self._csv.rows_left_out if self._csv else 0
