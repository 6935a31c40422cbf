"""The schedules of a task: TVM's sketches, their knobs, and a schedule from an index."""

import math
import random

from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from sluice_tools.programs import knobs
from sluice_tools.programs.tvm_setup import last_line

# Rules whose decisions are no knobs (RandomComputeLocation), and one that changes the task's inputs (RewriteLayout).
_LEFT_OUT = ("RandomComputeLocation", "RewriteLayout")
_TILE, _CATEGORY = "SamplePerfectTile", "SampleCategorical"


class Refused(Exception):
    """An index whose decisions make no valid schedule."""


class Space:
    def __init__(self, mod, target):
        kind = target.kind.name
        rules = [r for r in ms.schedule_rule.ScheduleRule.create(kind) if type(r).__name__ not in _LEFT_OUT]
        checks = [p for p in ms.postproc.Postproc.create(kind) if type(p).__name__ not in _LEFT_OUT]
        generator = ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=checks, mutator_probs={})
        # The same seed each time: the sketches, and with them the meaning of an index, must not change.
        self.context = ms.TuneContext(
            mod=mod, target=target, space_generator=generator, num_threads=1, rand_state=1, task_name="main"
        )
        self.traces = [schedule.trace for schedule in self.context.generate_design_space()]
        self._samples = [[i for i in t.insts if i.kind.name in (_TILE, _CATEGORY)] for t in self.traces]
        self.sketches = [
            {"knobs": [_knob(number, inst, trace.decisions[inst]) for number, inst in enumerate(samples)]}
            for trace, samples in zip(self.traces, self._samples)
        ]
        self.size = sum(map(knobs.size, self.sketches))

    def schedule(self, index: int) -> Schedule:
        """Raises Refused, or IndexError."""
        number, entity = knobs.entity_of(self.sketches, index)
        trace = self.traces[number]
        for inst, knob, (_, kind, choice) in zip(self._samples[number], self.sketches[number]["knobs"], entity):
            decision = choice if kind == "sp" else knob["values"].index(choice)
            trace = trace.with_decision(inst, decision, True)
        schedule = Schedule(self.context.mod, seed=1, debug_mask=0)
        try:
            trace.apply_to_schedule(schedule, remove_postproc=True)
            for check in self.context.space_generator.postprocs:
                if not check.apply(schedule):
                    raise Refused(f"{type(check).__name__} refuses the schedule")
        except Refused:
            raise
        except Exception as error:  # TVM raises errors of many classes here
            raise Refused(f"TVM refuses the schedule: {last_line(error)}") from None
        return schedule

    def sample(self, random_numbers: random.Random) -> int:
        """A random index: each sketch, and each choice of a knob, is equally likely among the plausible ones."""
        number = random_numbers.randrange(len(self.sketches))
        before = sum(knobs.size(sketch) for sketch in self.sketches[:number])
        index = before
        for _ in range(200):
            index = before + random_numbers.randrange(knobs.size(self.sketches[number]))
            if _is_plausible(knobs.entity_of(self.sketches, index)[1]):
                break
        return index


def _is_plausible(entity: list[list]) -> bool:
    """False where TVM's check is known to refuse: tiles of five parts have their threads in the third."""
    threads = [choice[2] for _, kind, choice in entity if kind == "sp" and len(choice) == 5]
    return not threads or 32 <= math.prod(threads) <= 1024


def _knob(number: int, inst, decision) -> dict:
    if inst.kind.name == _TILE:
        extent = 1
        for factor in decision:
            extent *= int(factor)
        parts, innermost = int(inst.attrs[0]), int(inst.attrs[1])
        return {
            "name": f"tile_{number}",
            "type": "sp",
            "extent": extent,
            "parts": parts,
            "max_innermost": innermost if innermost > 0 else extent,
        }
    return {"name": f"choice_{number}", "type": "ot", "values": [int(v) for v in inst.attrs[0]]}
