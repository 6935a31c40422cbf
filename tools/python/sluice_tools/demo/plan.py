"""The phases of the demo, as experiments of `sluice run`."""

from dataclasses import dataclass

from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE

DEFAULT = "device:200us"
ROLES = {"critical": CRITICAL, "best_effort": BEST_EFFORT}


@dataclass(frozen=True)
class Phase:
    name: str
    policy: str | None = None  # of both together; None: alone, without hooks
    announce_ms: float = 0.0

    @property
    def folder(self) -> str:
        return self.name.replace(":", "-").replace(" ", "-").replace(",", "")


PHASES = (
    Phase(ALONE),
    Phase(BEST_EFFORT_ALONE),
    *(Phase(policy, policy) for policy in ("none", "gate", "sync:1", "event:2", DEFAULT)),
    Phase(f"{DEFAULT}, announced", DEFAULT, announce_ms=2),
)


def experiment(phase: Phase) -> dict:
    """A critical model like an inference server's, and best-effort work that takes all it gets."""
    control = {"control": False}
    if phase.policy:
        control = {"control": True, "policy": phase.policy}
    # Jitter: with an exact period, all jobs would meet the GPU's time slices in the same place.
    arrival = {"kind": "periodic", "period_ms": 6, "jitter": 0.3, "seed": 1}
    critical = {
        "model_name": "resnet50_b1",
        "backend": "recording",
        "output_file_path": ".",
        "output_file_name": "critical",
        "priority": 1,
        "cuda_graph": True,
        "arrival": arrival,
        "control": control,
    }
    if phase.announce_ms:
        critical["announce_ms"] = phase.announce_ms
    best_effort = {
        "model_name": "resnet152_b256",
        "backend": "recording",
        "output_file_path": ".",
        "output_file_name": "best_effort",
        "priority": 0,
        "sleep_time": 0,
        "control": control,
    }
    alone = {ALONE: [critical], BEST_EFFORT_ALONE: [best_effort]}
    return {"models": alone.get(phase.name, [best_effort, critical])}
