import sys
import time

from sluice_tools.bench.pairs.protocol import answer, run_program
from spinning import Gpu


def obey(commands):
    answer("imported", torch="0")
    running, ends, gpu = False, [], None
    while True:
        command = commands.next(wait=not running)
        do = command and command["do"]
        if do == "quit":
            return
        if do == "load":
            gpu = Gpu()
            gpu.spin(100, 1)
            gpu.wait()
            answer("loaded", gpu="simulated")
        elif do == "capture":
            answer("captured")
        elif do == "run":
            running, ends = True, [time.monotonic_ns()]
            answer("running")
        elif do == "idle":
            running = False
            answer("idle", ends_ns=ends)
        if running and gpu:
            for blocks, us in ((1, 50), (2, 150)):
                gpu.spin(us, blocks)
            gpu.wait()
            ends.append(time.monotonic_ns())


sys.exit(run_program(obey))
