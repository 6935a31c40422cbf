import sys

from sluice_tools.bench.pairs import jobs
from sluice_tools.bench.pairs.protocol import answer, run_program
from spinning import Gpu


def obey(commands):
    answer("imported", torch="0")
    sluice, gpu = jobs.Sluice(), None

    def work():
        gpu.copy_in()
        gpu.spin(300, 1)
        gpu.wait()

    while (command := commands.next())["do"] != "quit":
        if command["do"] == "load":
            gpu = Gpu()
            work()
            answer("loaded", gpu="simulated", attached=sluice.attached(), announces=sluice.announces())
        elif command["do"] == "calibrate":
            answer("calibrated", latency_ms=jobs.back_to_back(work, sluice, command["jobs"]))
        else:
            answer("done", **jobs.serve(work, sluice, command, lambda: answer("measuring")))


sys.exit(run_program(obey))
