"""The folder of a run: its traced clients and what else it left behind."""

import functools
import json
from pathlib import Path

from sluice_tools.common.errors import run_error, usage_error
from sluice_tools.trace.client import Client
from sluice_tools.trace.clock import Clock


class Run:
    """What a run left behind. `clients` is empty for a run without a trace, `results` (results.json)
    None for a trace of `sluice exec --trace`."""

    def __init__(self, folder: Path, clients: list[Client], results: dict | None, models: list[tuple[str, int]]):
        self.folder = folder
        self.clients = clients
        self.results = results
        self.models = models
        for client in clients:
            client._rivals = [
                other
                for other in clients
                if other.priority > client.priority and other.device_uuid == client.device_uuid
            ]

    @property
    def begin_ns(self) -> int:
        """Where the viewer file and the CSV have their zero."""
        return min((c.header.begin_monotonic_ns for c in self.clients), default=0)

    @functools.cached_property
    def clock(self) -> Clock:
        """Of all clients: they ran on one machine."""
        return Clock([pair for client in self.clients for pair in client.clock])


def _json(path: Path, kind: type):
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise run_error(f"cannot read {path}: {error}") from error
    if not isinstance(content, kind):
        raise run_error(f"{path} is not a JSON {'list' if kind is list else 'object'}")
    return content


def read_models_pid(path: Path) -> list[tuple[str, int]] | None:
    """models_pid.json: pairs of a model and the pid of its process. None where there is no file."""
    pairs = _json(path, list)
    if pairs is None:
        return None
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], int)):
            raise run_error(f'{path}: {json.dumps(pair)} is not a pair of a model and a pid, like ["resnet50", 4711]')
    return [(name, pid) for name, pid in pairs]


def _trace_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.sltrace"), key=lambda path: (len(path.name), path.name))


def _places(given: Path) -> tuple[Path, Path]:
    """The folder of the run, and that of its traces."""
    if _trace_files(given) or given.name == "trace":
        of_run = given.name == "trace" and (
            (given.parent / "results.json").exists() or (given.parent / "models_pid.json").exists()
        )
        return (given.parent if of_run else given), given
    return given, given / "trace"


def read_run(folder: Path) -> Run:
    """The run in a folder that `sluice run` or `sluice exec --trace` wrote; its trace/ will do."""
    given = Path(folder)
    if not given.is_dir():
        raise usage_error(f"{given} is not a folder; name the one that a run wrote its results into")
    run_folder, trace_folder = _places(given.absolute())
    results = _json(run_folder / "results.json", dict)
    models = read_models_pid(run_folder / "models_pid.json")
    if models is None:
        models = [(m["model"], m["pid"]) for m in (results or {}).get("models", []) if "model" in m and "pid" in m]
    files = _trace_files(trace_folder)
    if not files and results is None and not models:
        raise usage_error(f"{given} holds no run: neither results.json nor trace/*.sltrace")
    by_pid = {pid: name for name, pid in models}
    logs = {m.get("pid"): m.get("log") for m in (results or {}).get("models", []) if isinstance(m, dict)}
    clients = []
    for path in files:
        client = Client(path, None, trace_folder / "gpu.log")
        client.model, client.log = by_pid.get(client.pid), logs.get(client.pid)
        clients.append(client)
    return Run(run_folder, clients, results, models)
