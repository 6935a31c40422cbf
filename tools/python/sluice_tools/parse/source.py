"""Where the kernels of a parse come from: a CSV, or a run of ours."""

from pathlib import Path

from sluice_tools.errors import usage_error
from sluice_tools.parse.kernel_csv import NEEDED, KernelCsv
from sluice_tools.parse.models import Models
from sluice_tools.progress import Progress
from sluice_tools.trace.kernel_table import client_table, require_executions
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
            self.models = read_models_pid(pids) if pids else self._run.models
            self.near = self._run.folder
        else:
            self._csv = KernelCsv(path)
            self.name = path.name
            pids = pids or self._beside(path)
            self.models = read_models_pid(pids)
            self.near = pids.parent
        if self.models is None:
            raise usage_error(f"cannot read {pids}: no such file")

    @staticmethod
    def _beside(path: Path) -> Path:
        for folder in (path.parent, path.parent.parent, Path()):
            if (folder / "models_pid.json").exists():
                return folder / "models_pid.json"
        raise usage_error(f"no models_pid.json beside {path} nor here; name it with -p")

    def feed(self, models: Models) -> None:
        if self._run is not None:
            clients = require_executions(self._run)
            with Progress("reading", sum(client.counts["execs"] for client in clients)) as progress:
                rows = 0
                for client in clients:
                    for kernels in client.iter_kernels():
                        models.add(client_table(client, kernels, self._run.begin_ns)[list(NEEDED)])
                        rows += len(kernels)
                        progress.at(rows)
            return
        with Progress("reading", self._csv.size) as progress:
            rows = 0
            for chunk in self._csv.chunks():
                models.add(chunk)
                rows += len(chunk)
                progress.at(rows * self._csv.bytes_per_row)

    @property
    def rows_left_out(self) -> int:
        return self._csv.rows_left_out if self._csv else 0
