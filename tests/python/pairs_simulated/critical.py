import sys

from spinning import Gpu

from sluice_tools.bench.pairs import jobs
from sluice_tools.bench.pairs.protocol import answer, run_program


def obey(commands):
    answer("imported", torch="0")
    sluice = jobs.Sluice()
    while (command := commands.next())["do"] != "quit":
        if command["do"] == "load":
            gpu = Gpu()

            def work():
                gpu.copy_in()
                gpu.spin(300, 1)
                gpu.wait()

            work()
            answer("loaded", gpu="simulated", attached=sluice.attached(), announces=sluice.announces())
        elif command["do"] == "calibrate":
            answer("calibrated", latency_ms=jobs.back_to_back(work, sluice, command["jobs"]))
        else:
            answer("done", **jobs.serve(work, sluice, command, lambda: answer("measuring")))


sys.exit(run_program(obey))
