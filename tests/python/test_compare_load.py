"""`sluice compare` of servers that wait for requests: a wrong diagnosis costs an hour, a right one is a line."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from operator import truediv
from pathlib import Path

import pytest
from sluice_tools.common import errors
from sluice_tools.compare import cli
from sluice_tools.measure import ends, processes, readiness
from sluice_tools.measure.commands import Commands, Setting
from sluice_tools.measure.load import Latency, Load
from sluice_tools.measure.rows import CRITICAL, Rows
from sluice_tools.measure.sitting import CellError

needs_build = pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="needs a build of Sluice")
_HERE = Path(__file__).parent
_BEST_EFFORT = ["sluice-example-spin", "--kernels", "50", "--kernel-us", "100"]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def server(port: int, *options: str) -> list:
    return [sys.executable, str(_HERE / "http_server_on_gpu.py"), str(port), *options]


def load(port: int, more: str = "") -> str:
    return f"{sys.executable} {_HERE / 'http_load.py'} {port} {more}"


def compare(folder, critical, *options, best_effort=_BEST_EFFORT, **more):
    """Exit code, standard output, standard error."""
    lasting = ["--seconds", "1.5", "--warm-up", "0.5", "--start-limit", "20", "--repeats", "1"]
    command = [os.environ["SLUICE_TEST_PROGRAM"], "compare", "--gpu", "sim", "--out", str(folder / "out")]
    command += [*lasting, *options, "--", *critical, "--", *best_effort]
    pipe = subprocess.PIPE
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=folder, encoding="utf-8", **more)
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def rows_of(folder) -> dict:
    return {(row["cell"], row["role"]): row for row in Rows(folder / "out" / "compare.csv", cli.ROW_FIELDS).rows}


def last_line(err: str) -> str:
    return err.strip().splitlines()[-1]


@needs_build
def test_the_load_begins_when_the_server_is_ready_and_its_latency_counts(tmp_path):
    port = free_port()
    code, out, err = compare(
        tmp_path,
        server(port),
        *("--load", load(port, "--count 7"), "--latency", "took ([0-9.]+) ms"),
        *("--seconds", "4"),  # on a busy host the load generator takes a second to start again
        *("--setup", "echo begun >> steps", "--cleanup", "echo ended >> steps"),
    )
    assert code == 0, err
    assert (tmp_path / "steps").read_text() == "begun\nended\n"
    rows = rows_of(tmp_path)
    alone, bare = rows["alone", CRITICAL], rows["bare", CRITICAL]
    # The client sees the job and what HTTP costs, in the GPU's time. A request in seven waits for the next start.
    assert 0.8 <= float(alone["p50_ms"]) < 8
    assert int(alone["jobs"]) > 5 and int(bare["jobs"]) > 0
    assert "Latency is the load generator's own" in out
    # Without Sluice nobody waits for anybody, in the same processes as with it.
    assert float(rows["bare", "best effort"]["held_ms"]) == 0 and rows["bare", CRITICAL]["policy"] == "none"
    assert int(rows["device:200us", "best effort"]["waited"]) > 0
    assert [path.name for path in (tmp_path / "out" / "output").glob("*-critical.log")] == ["alone-1-critical.log"]


@needs_build
@pytest.mark.parametrize("options", [(), ("warm",)])
def test_a_server_to_which_nobody_sends_is_said_at_once(tmp_path, options):
    """Also if it ran jobs before it was ready."""
    port = free_port()
    began = time.monotonic()
    code, out, err = compare(tmp_path, server(port, *options))
    assert (code, out) == (1, "")
    assert last_line(err).startswith(
        f"sluice compare: nobody sent requests to the critical command: it listens on port {port} and is idle; give a "
        "load generator with --load"
    )
    assert time.monotonic() - began < 60


def batching_server(port: int, in_flight: int, *options: str) -> list:
    return [sys.executable, str(_HERE / "batching_server_on_gpu.py"), str(port), str(in_flight), *options]


@needs_build
@pytest.mark.parametrize("pause", ["0", "0.2"])
@pytest.mark.parametrize("in_flight", [0, 1, 2])
def test_a_server_that_is_never_idle_is_compared(tmp_path, in_flight, pause):
    """It ends no job, or few, and of other numbers of steps in each cell. It never is one to which nobody sends."""
    port = free_port()
    sends = load(port, f"--connections 3 --pause {pause}")
    code, out, err = compare(tmp_path, batching_server(port, in_flight), "--seconds", "3", "--load", sends)
    assert code == 0, err
    assert "UNKNOWN" not in out and "PROBABLY" in out
    counted, rows = ends.chosen(Rows(tmp_path / "out" / "compare.csv", cli.ROW_FIELDS).rows)
    of = {row["cell"]: row for row in rows if row["role"] == CRITICAL}
    if in_flight == 2 and pause == "0":
        assert counted == "steps"
    if in_flight == 1 and pause == "0":
        # Whether the GPU is idle between two steps, so that each is a job, depends on the host.
        measured = [row for row in rows_of(tmp_path).values() if row["role"] == CRITICAL]
        jobs, steps = ([int(row[name] or 0) for row in measured] for name in ("jobs", "steps"))
        alike = min(jobs) >= 20 and max(map(truediv, steps, jobs)) <= 1.2 * min(map(truediv, steps, jobs))
        assert counted == ("jobs" if alike else "steps"), (jobs, steps)
    assert ("Latency is that of the critical client's steps" in " ".join(out.split())) == (counted == "steps")
    assert all(int(row["jobs"]) >= 20 for row in of.values())
    if in_flight == 2 and pause == "0":
        # 20 kernels of 40 us, in the GPU's time. Next to best effort, a step has time slices of others in it.
        assert 0.75 <= float(of["alone"]["p50_ms"]) < 2 and of["alone"]["jobs"] == of["alone"]["steps"]
        assert float(of["bare"]["p50_ms"]) > float(of["alone"]["p50_ms"])
        assert float(of["alone"]["active_share"]) > 0.9


@needs_build
def test_a_server_that_never_waits_needs_the_latency_of_its_clients(tmp_path):
    """It asks for its events again and again, so nothing is seen to end; that is no idle server."""
    port = free_port()
    sends = load(port, "--connections 3 --pause 0")
    code, out, err = compare(tmp_path, batching_server(port, 2, "polls"), "--load", sends)
    assert (code, out) == (1, "")
    assert "the critical command works (" in last_line(err) and "give --load and --latency" in last_line(err)
    port = free_port()
    sends = load(port, "--connections 3 --pause 0")
    code, out, err = compare(
        tmp_path / "again",
        batching_server(port, 2, "polls"),
        *("--load", sends, "--latency", "took ([0-9.]+) ms", "--seconds", "3"),
    )
    assert code == 0, err
    assert "Latency is the load generator's own" in out and "PROBABLY" in out


@needs_build
def test_a_load_that_sends_elsewhere_is_said(tmp_path):
    port = free_port()
    code, _, err = compare(tmp_path, server(port), "--load", "echo sent; sleep 0.2")
    assert code == 1
    said = f"it listens on port {port} and is idle, although the load command runs (sent"
    assert f"nobody sent requests to the critical command: {said}" in last_line(err)


@needs_build
@pytest.mark.parametrize(
    "options, said",
    [
        (["--load", "echo no route; exit 7"], "the load command exited with 7: no route; the critical command: it "),
        (["--ready", "1", "--load", "true", "--start-limit", "3"], "the critical command was not ready (--ready 1) wi"),
        (
            ["--ready", "http://127.0.0.1:1/", "--load", "true", "--start-limit", "3"],
            "the critical command was not rea",
        ),
        (["--setup", "echo no disk; exit 5", "--load", "true"], "the --setup command exited with 5: no disk"),
    ],
)
def test_a_command_around_the_two_that_fails_is_one_line(tmp_path, options, said):
    port = free_port()
    code, out, err = compare(tmp_path, server(port), *options)
    assert (code, out) == (1, "")
    assert said in last_line(err) and last_line(err).startswith("sluice compare: ")
    if "ready" in said:
        assert f"it listens on port {port}" in last_line(err)


@needs_build
def test_a_port_that_another_server_has_is_not_ready(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        code, _, err = compare(tmp_path, server(free_port()), "--ready", str(taken), "--load", "true")
    assert code == 1 and f"port {taken} is open before the critical command has started" in last_line(err)


@needs_build
def test_a_latency_that_nobody_prints_is_said(tmp_path):
    port = free_port()
    code, _, err = compare(tmp_path, server(port), "--load", load(port), "--latency", "lat=([0-9.]+)")
    assert code == 1 and "--latency: the load command said no latency in 1.5 s" in last_line(err)
    assert "took " in last_line(err)


@needs_build
def test_a_server_that_dies_in_one_cell_loses_that_cell(tmp_path):
    port = free_port()
    end = "test -e once || touch once die; exec sluice-example-spin --kernels 50 --kernel-us 100"
    libexec = Path(os.environ["SLUICE_TEST_PROGRAM"]).parents[1] / "libexec" / "sluice"
    code, out, err = compare(
        tmp_path,
        server(port, "dies-if", "die"),
        *("--load", load(port)),
        best_effort=["sh", "-c", end.replace("sluice-ex", f"{libexec}/sluice-ex")],
    )
    assert code == 1
    assert "time-sliced, bare: the critical command exited with 7: out of luck" in err
    assert set(rows_of(tmp_path)) == {
        ("alone", CRITICAL),
        ("device:200us", CRITICAL),
        ("device:200us", "best effort"),
        ("best effort alone", "best effort"),
    }
    assert "Not measured: bare: the critical command exited with 7: out of luck" in out
    assert "UNKNOWN: no round has both" in out
    assert "next: mend what was not measured" in out and "sluice exec" not in out.replace(str(port), "")
    code, out, err = compare(tmp_path, server(port, "dies-if", "die"), "--load", load(port), best_effort=["false"])
    assert code == 2 and "other commands" in err


@needs_build
def test_sluice_serve_under_load(tmp_path):
    """It starts itself anew with the interposer, and must stay the critical command."""
    grpc, http = free_port(), free_port()
    code, _, err = compare(
        tmp_path,
        ["sluice", "serve", "--models", "resnet50_b1", "--gpu", "sim", "--port", str(grpc), "--http", str(http)],
        *("--ready", f"http://127.0.0.1:{http}/v2/health/ready"),
        *("--load", f"sluice hybrid_workload --infer-model resnet50_b1 -c 1 -d 600 -p {grpc}"),
        env=os.environ | {"PATH": f"{Path(os.environ['SLUICE_TEST_PROGRAM']).parent}:{os.environ['PATH']}"},
    )
    assert code == 0, err
    assert int(rows_of(tmp_path)["device:200us", CRITICAL]["jobs"]) > 0


@needs_build
def test_a_full_disk_takes_no_table_and_a_plain_terminal_reads_it(tmp_path):
    """Both from a measured folder: nothing is measured anew."""
    spin = ["sluice-example-spin", "--kernels", "20", "--kernel-us", "40", "--period-ms", "6"]
    code, out, err = compare(tmp_path, spin)
    assert code == 0 and "× alone" in out, err
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    code, out, _ = compare(tmp_path, spin, env=env | {"LC_ALL": "C"})
    assert code == 0 and "x alone" in out and out.isascii()
    (tmp_path / "out" / "compare.html").unlink()
    (tmp_path / "out" / "compare.html").symlink_to("/dev/full")
    code, out, err = compare(tmp_path, spin)
    assert code == 1 and "\ndevice:200us " in out
    assert "compare.html: No space left on device" in last_line(err)
    assert "compare.md" in out.splitlines()[-1] and "compare.html" not in out.splitlines()[-1]
    code, out, _ = compare(tmp_path, spin, "--json")
    assert code == 0 and json.loads(out)["cells"]


def test_a_command_that_dies_before_it_is_set_is_the_reason():
    """Not that `sluice set` finds no client, which would end all cells."""

    class Gone:
        pids = staticmethod(lambda name: [4711])

        def set(self, pid, given):
            raise errors.run_error(f"no client 'pid:{pid}'")

    class Dead:
        describe_end = staticmethod(lambda: "exited with 7: out of luck")

    found = Commands.__new__(Commands)
    vars(found).update(_bare=False, _load=None, _worked={CRITICAL}, _running={CRITICAL: Dead()})
    with pytest.raises(CellError, match="the critical command exited with 7: out of luck"):
        found._set(Gone(), Setting((CRITICAL,), bare=True))


def test_latency_is_found_in_lines_and_files(tmp_path):
    assert Latency("took ([0-9.]+) ms").of_line("took 1.5 ms, took 2 ms") == [("ms", 1.5), ("ms", 2.0)]
    assert Latency("(?P<s>[0-9.]+)s|(?P<us>[0-9]+)u").of_line("0.25s 300u") == [("ms", 250.0), ("ms", 0.3)]
    summary = Latency("Median.*?(?P<p50>[0-9.]+)|P99.*?(?P<p99>[0-9.]+)")
    assert summary.of_line("P99 TTFT (ms): 31.5") == [("p99", 31.5)]
    assert summary.of_line("Mean TTFT (ms): 9") == [] and Latency("([a-z]+)").of_line("word") == []
    file = tmp_path / "latency.csv"
    latency = Latency(str(file))
    assert (latency.size(), latency.of_file(0)) == (0, [])
    file.write_text("12:00:01,GET,3.5\n")
    begin = latency.size()
    file.write_text("12:00:01,GET,3.5\nheader\n12:00:02,GET,4.5e1\n")
    assert latency.of_file(begin) == [45.0]
    file.write_text("7\n")
    assert latency.of_file(begin) == [7.0], "written anew"


def test_a_load_runs_again_until_it_is_closed_or_fails(tmp_path):
    again = Load("echo took 5 ms", tmp_path / "log", {}, Latency("took ([0-9]+)"))
    deadline = time.monotonic() + 20
    while again.ends < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert again.figures(scale=10)["p50_ms"] == 0.5
    again.clear()
    again.close()
    failing = Load("echo oh; kill -9 $$", tmp_path / "log", {})
    while not failing.failure:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    failing.close()
    assert failing.failure == "was killed by SIGKILL: oh" and failing.ends == 1


def test_a_summary_is_the_median_of_the_runs(tmp_path):
    found = Load("echo p50=4; echo p50=6; echo p50=50; sleep 60", tmp_path / "log", {}, Latency("p50=(?P<p50>[0-9]+)"))
    deadline = time.monotonic() + 20
    while found.figures(1) != {"p50_ms": 6.0}:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    found.close()


def test_a_program_that_launches_now_and_then_does_not_go_on(monkeypatch):
    """Prevents: a server that loads its weights, measured as if it worked."""
    now = 0.0
    monkeypatch.setattr(readiness.time, "monotonic", lambda: now)
    steady, loading = readiness.Launching(), readiness.Launching()
    found = []
    for look in range(300):
        now = look / 10
        found.append((steady.goes_on(1 + look // 5), loading.goes_on(1 + look // 40)))
    assert next(look for look, (goes_on, _) in enumerate(found) if goes_on) == 100
    assert not any(goes_on for _, goes_on in found)


def test_processes_of_a_program_and_their_ports():
    listens = (
        "import socket, time; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
        "print(s.getsockname()[1], flush=True); time.sleep(60)"
    )
    # A child in a session of its own is found, too.
    setsid = shutil.which("setsid") or ""
    script = f'{setsid} -w {sys.executable} -c "{listens}" & while :; do :; done'
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout
            assert processes.ports(process.pid) in ([], [int(port := process.stdout.readline())])
            assert processes.ports(process.pid) == [int(port)]
            before = processes.cpu_seconds(process.pid)
            deadline = time.monotonic() + 30
            while processes.cpu_seconds(process.pid) < before + 0.05:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert processes.ports(os.getpid()) == [] or int(port) in processes.ports(os.getpid())
        finally:
            for pid in processes._tree(process.pid, processes._stats()):
                os.kill(pid, 9)
