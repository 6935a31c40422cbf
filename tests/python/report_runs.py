"""Folders as `sluice run` leaves them, with figures known in advance."""

import json
from pathlib import Path

from trace_files import BEGIN_NS, REALTIME_NS, TraceFile

MS = 1_000_000


def write_run(
    folder: Path,
    models: list,
    results: bool = True,
    simulated: bool = False,
    sharing: str = "time-sliced",
    scale: float = 1.0,
    **more,
) -> Path:
    """models: dicts with log, priority, policy, jobs [(start ms, JCT ms)] and more of results.json.
    The warm-up is added. Times of jobs are real."""
    folder.mkdir(parents=True, exist_ok=True)
    entries, resolved, pids = [], [], []
    for number, model in enumerate(models):
        model = {
            "model": "net_" + model["log"],
            "pid": 100 + number,
            "priority": 0,
            "policy": "gate",
            "on_cpu": False,
            "died": None,
        } | model
        jobs = model.pop("jobs")
        entries.append(model | {"jobs": len(jobs)})
        pids.append([model["model"], model["pid"]])
        resolved.append(
            {
                "model_name": model["model"],
                "output_file_name": model["log"],
                "priority": model["priority"],
                "control": {"control": True, "policy": model["policy"]},
            }
        )
        lines = ["start_timestamp_ns,end_timestamp_ns,jct_ms,max_allocated,max_reserved"]
        for start, jct in [(-1000, 999.0), *jobs]:
            begin = REALTIME_NS + int(start * MS)
            lines.append(f"{begin},{begin + int(jct * MS)},{jct / scale},0,0")
        (folder / f"{model['log']}.csv").write_text("\n".join(lines) + "\n")
        where = f" (simulated: JCT is real time / {scale:g}, time stamps are real)" if simulated else ""
        (folder / f"{model['log']}.log").write_text(f"device: 0 Test GPU{where}\n")
    (folder / "experiment.resolved.json").write_text(json.dumps({"models": resolved}))
    (folder / "models_pid.json").write_text(json.dumps(pids))
    if results:
        (folder / "results.json").write_text(
            json.dumps(
                {
                    "gpu": {"name": "Test GPU", "sharing": sharing},
                    "simulated": simulated,
                    "time_scale": scale,
                    "real_duration_s": 1.0,
                    "stopped_by": "time",
                    "models": entries,
                }
                | more
            )
        )
    return folder


def pair(folder: Path, **more) -> Path:
    """B, critical: ten jobs, the fourth slow. A, best effort, back to back."""
    critical = [(100 * i, 3.1 if i == 3 else 1.1) for i in range(10)]
    return write_run(
        folder,
        [
            {"log": "A", "priority": 0, "policy": "gate", "jobs": [(20 * i, 20.0) for i in range(50)]},
            {"log": "B", "priority": 1, "policy": "gate", "jobs": critical},
        ],
        **more,
    )


def traced_pair(folder: Path, kernel: str = "void gemm<float, 4>(int)") -> Path:
    """pair() with a trace. In the slow job, of 3.1 ms, A's kernel runs for 1.4 ms after the job's
    begin, another that was queued for 0.5 ms, and B's thread is held for 0.1 ms."""
    pair(folder)
    low, high = TraceFile(100, 0, "gate"), TraceFile(101, 1, "gate")
    low.job(0, 1000 * MS, 1)
    for number in range(10):
        begin = number * 100 * MS
        slow = number == 3
        high.job(begin, begin + int((3.1 if slow else 1.1) * MS), number + 1)
        if slow:
            low.kernel(begin - 3 * MS, begin - 2 * MS, begin + int(1.4 * MS), kernel)
            low.kernel(begin - 2 * MS, begin + int(1.4 * MS), begin + int(1.9 * MS), "queued_one")
            correlation = high.kernel(begin + int(0.1 * MS), begin + int(1.95 * MS), begin + 3 * MS, "mine")
            high.hold(begin, begin + int(0.1 * MS), correlation, 1, 100)
        else:
            high.kernel(begin + int(0.02 * MS), begin + int(0.05 * MS), begin + int(1.05 * MS), "mine")
            correlation = low.kernel(begin + 2 * MS, begin + 3 * MS, begin + 19 * MS, "long_one")
            low.hold(begin, begin + int(1.1 * MS), correlation, 1, 101)
    low.write(folder / "trace")
    high.write(folder / "trace")
    return folder


__all__ = ["BEGIN_NS", "MS", "REALTIME_NS", "pair", "traced_pair", "write_run"]
