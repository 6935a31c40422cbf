"""Writes a traced run of any size: a critical model with a job of 40 kernels every 10 ms, and a
best-effort model that is held during those jobs."""

import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "tests" / "python")]

from sluice_tools.trace import format as fmt  # noqa: E402
from trace_files import SCHEMA, header_page  # noqa: E402

_PERIOD_NS = 10_000_000
_COLLECTED = 5  # periods between writes of executions, which CUPTI delivers in batches
_BLOCK = 40  # periods that are written at once
_REALTIME_NS = 1_795_000_000_000_000_000
_NAMES = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
    "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage3",
    "void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>(float, float, const float *)",
)


def _name(number: int, text: str) -> bytes:
    pieces = np.zeros(-(-len(text) // SCHEMA.name_piece), SCHEMA.name)
    for part, piece in enumerate(pieces):
        data = text[part * SCHEMA.name_piece :][: SCHEMA.name_piece].encode().ljust(SCHEMA.name_piece, b"\0")
        piece["text"], piece["text_goes_on"] = np.void(data[:16]), np.void(data[16:])
        piece["kind"], piece["part"] = fmt.NAME_KIND, part
        piece["name"], piece["length"] = number, len(text)
    return pieces.tobytes()


class _Client:
    """A traced process with `launches` launches in each period, one every `step_ns`."""

    def __init__(
        self, pid: int, priority: int, launches: int, step_ns: int, kernel_ns: int, delay_ns: int, streams: int
    ):
        self.pid, self.priority, self.launches = pid, priority, launches
        self._step, self._kernel, self._delay, self._streams = step_ns, kernel_ns, delay_ns, streams

    @property
    def records(self) -> int:
        """Records of a period: launches, executions, and either begin and end of a job or a hold."""
        return 2 * self.launches + (2 if self.priority else 1)

    def head(self) -> bytes:
        header = np.zeros(1, SCHEMA.header)
        for name, value in (
            ("magic", fmt.MAGIC),
            ("version", 2),
            ("pid", self.pid),
            ("time_scale", 1),
            ("record_size", SCHEMA.record.itemsize),
            ("exec_source", fmt.EXEC_CUPTI),
            ("policy", b"gate"),
            ("priority", self.priority),
            ("begin_realtime_ns", _REALTIME_NS),
        ):
            header[name] = value
        return header_page(header) + b"".join(_name(number, text) for number, text in enumerate(_NAMES, 1))

    def block(self, first: int, rng: np.random.Generator) -> np.ndarray:
        """Records of _BLOCK periods. Each group of _COLLECTED has its launches, then their executions."""
        period = np.arange(first, first + _BLOCK)
        launch = period[:, None] * self.launches + np.arange(self.launches)
        issue = (
            period[:, None] * _PERIOD_NS + np.arange(self.launches) * self._step + rng.integers(0, 2_000, launch.shape)
        )
        of_launch = np.zeros((_BLOCK, self.launches, 2), SCHEMA.record)
        of_launch["kind"] = fmt.LAUNCH, fmt.EXEC
        of_launch["thread"] = self.pid
        of_launch["correlation"] = launch[:, :, None] + 1
        of_launch["name"] = launch[:, :, None] % len(_NAMES) + 1
        of_launch["stream"] = launch[:, :, None] % self._streams + 7
        of_launch["begin_ns"][:, :, 0], of_launch["end_ns"][:, :, 0] = issue, issue + 3_000
        begin = issue + self._delay + rng.integers(0, 50_000, (_BLOCK, 1))
        of_launch["begin_ns"][:, :, 1] = begin
        of_launch["end_ns"][:, :, 1] = begin + self._kernel + rng.integers(0, 2_000, launch.shape)
        of_launch = of_launch.reshape(-1, _COLLECTED * self.launches, 2).transpose(0, 2, 1)
        return np.concatenate([self._of_period(period, of_launch["end_ns"].max()), of_launch.ravel()])

    def _of_period(self, period: np.ndarray, end_ns: int) -> np.ndarray:
        begin, end = period * _PERIOD_NS, period * _PERIOD_NS + 1_500_000
        rows = np.zeros((len(period), 2 if self.priority else 1), SCHEMA.record)
        rows["thread"] = self.pid
        rows["begin_ns"], rows["end_ns"] = begin[:, None], end[:, None]
        rows["correlation"] = period[:, None] + 1
        if self.priority:
            rows["kind"] = fmt.JOB_BEGIN, fmt.JOB_END
            rows["end_ns"][:, 0] = begin
        else:
            rows["kind"], rows["flags"], rows["b"] = fmt.HOLD, 1, self.pid + 1
        return rows.ravel()


def write_run(folder: Path, size: int) -> int:
    """Writes a run with `size` bytes of trace into a new folder. Returns the number of kernels."""
    low, high = _Client(11, 0, 100, 80_000, 70_000, 400_000, 2), _Client(12, 1, 40, 10_000, 25_000, 20_000, 1)
    periods = size // ((low.records + high.records) * SCHEMA.record.itemsize) // _BLOCK * _BLOCK
    rng = np.random.default_rng(0)
    (folder / "trace").mkdir(parents=True)
    for client in (low, high):
        with (folder / "trace" / f"{client.pid}.sltrace").open("wb") as file:
            file.write(client.head())
            for first in range(0, periods, _BLOCK):
                file.write(client.block(first, rng).tobytes())
    pids = [["low", low.pid], ["high", high.pid]]
    (folder / "models_pid.json").write_text(json.dumps(pids))
    models = [
        {"log": name, "model": name, "pid": client.pid, "priority": client.priority, "policy": "gate"}
        for (name, _), client in zip(pids, (low, high))
    ]
    (folder / "results.json").write_text(
        json.dumps({"gpu": {"name": "Some GPU", "sharing": "time-sliced"}, "stopped_by": "time", "models": models})
    )
    for name, jct in (("low", 8.0), ("high", 1.5)):
        at = _REALTIME_NS + np.arange(periods) * _PERIOD_NS
        (folder / f"{name}.csv").write_text(
            "start_timestamp_ns,end_timestamp_ns,jct_ms\n"
            + "".join(f"{begin},{begin + int(jct * 1e6)},{jct}\n" for begin in at.tolist())
        )
    return periods * (low.launches + high.launches)
