"""The reader of traces: what it takes, and what it makes of traces of killed processes."""

import json
import random

import numpy as np
import pytest

pytest.importorskip("pandas", reason="./x reports fetches it")

from sluice_tools.common.errors import CommandError
from sluice_tools.trace import format as fmt
from sluice_tools.trace import records, spill
from sluice_tools.trace.cli import main
from sluice_tools.trace.lanes import Lanes
from sluice_tools.trace.reader import Client, read_run
from trace_files import BEGIN_NS, REALTIME_NS, SCHEMA, TraceFile, header_page, log_line


def refused(code, call, *args) -> str:
    with pytest.raises(CommandError) as error:
        call(*args)
    assert error.value.code == code
    assert "\n" not in str(error.value)
    return str(error.value)


def simulated(pid: int, **header) -> TraceFile:
    return TraceFile(pid, simulated=1, exec_source=fmt.EXEC_SIMULATOR, time_scale=10.0, **header)


def test_header_and_records(tmp_path):
    trace = TraceFile(42, priority=3, policy="event:2", lost=5)
    trace.clock(0)
    correlation = trace.launch(100, 150, "gemm", tid=43, entry=2)
    trace.exec(200, 300, correlation, "gemm")
    client = Client(trace.write(tmp_path))
    assert (client.pid, client.priority, client.policy, client.lost) == (42, 3, "event:2", 5)
    assert client.command == "program-42 --flag" and client.label == "program-42 (42)"
    launches = client.launches()
    assert launches.iloc[0].to_dict() == {
        "begin_ns": BEGIN_NS + 100,
        "end_ns": BEGIN_NS + 150,
        "tid": 43,
        "correlation": 1,
        "stream": 7,
        "name": "gemm",
        "flags": 2,
        "graph": False,
        "result": 0,
    }
    assert str(launches["name"].dtype) == "category"
    assert client.execs()[["begin_ns", "end_ns", "name"]].values.tolist() == [[BEGIN_NS + 200, BEGIN_NS + 300, "gemm"]]
    kernel = client.kernels().iloc[0]
    assert (kernel.issue_begin_ns, kernel.begin_ns) == (BEGIN_NS + 100, BEGIN_NS + 200)


@pytest.mark.parametrize("cut", [1, 63, 64, 65])
def test_truncated_file_keeps_all_whole_records(tmp_path, cut):
    """A copy of a killed process's file may end anywhere, also in the middle of a record."""
    trace = TraceFile(1)
    trace.name("kernel")
    for i in range(10):
        trace.launch(i, i + 1)
    client = Client(trace.write(tmp_path, tail=0, cut=cut))
    assert len(client.launches()) == 10 - -(-cut // 64)


def test_holes_are_counted_and_the_tail_is_not(tmp_path):
    trace = TraceFile(1)
    trace.launch(0, 1)
    trace.hole()
    trace.launch(2, 3)
    client = Client(trace.write(tmp_path, tail=5000))
    assert client.counts == {"launches": 2, "execs": 0, "holds": 0, "jobs": 0, "unwritten": 1, "lost": 0}
    assert client.launches()["correlation"].tolist() == [1, 2]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 50, 10_000])
def test_kernels_in_chunks_whatever_comes_when(tmp_path, monkeypatch, chunk):
    """Executions come after their launches, late and in another order; one comes before its launch's
    record, which a thread writes when the call has returned; one has no launch."""
    trace = TraceFile(1)
    trace.name("kernel")
    trace.exec(5, 6, 1)
    late = [(trace.launch(i * 10, i * 10 + 1), i * 10 + 5) for i in range(40)]
    late = late[1:]
    np.random.default_rng(0).shuffle(late)
    for correlation, at in late:
        trace.exec(at, at + 1, int(correlation))
    graph = trace.launch(1000, 1001, graph=True)
    trace.exec(1002, 1003, graph, node=1).exec(1003, 1004, graph, node=2).exec(1, 2, 999)
    client = Client(trace.write(tmp_path))
    columns = ["begin_ns", "correlation", "issue_begin_ns", "node"]
    whole = client.kernels()[columns].values.tolist()
    assert [[b - BEGIN_NS, c, i - BEGIN_NS] for b, c, i, _ in whole[1:-2]] == [
        [i * 10 + 5, i + 1, i * 10] for i in range(1, 40)
    ] and len(whole) == 42
    monkeypatch.setattr(spill, "BUFFER_BYTES", chunk * 64)
    monkeypatch.setattr(spill, "CHUNK_BYTES", chunk * 32)
    monkeypatch.setattr(spill, "_LEAST_ROWS", 1)
    monkeypatch.setattr(records, "CHUNK_RECORDS", chunk)
    assert client.kernels()[columns].values.tolist() == whole
    assert (len(list(client.by_launch())) > 1) == (chunk < 1000)


def test_names_long_late_lost_and_alike(tmp_path):
    """A name may be written after its first use, a piece of it may be lost, and two functions may
    have one name."""
    long_name = "void " + "template_argument<" * 20 + "é"
    trace = TraceFile(1)
    trace.record(fmt.LAUNCH, correlation=1, name=1)
    trace.name(long_name, 1)
    trace.record(fmt.LAUNCH, correlation=2, name=99)
    trace.launch(0, 1, None, graph=True)
    trace.name("alike", 3)
    trace.names.clear()
    trace.name("alike", 4)
    for number in (3, 4):
        trace.record(fmt.LAUNCH, correlation=number, name=number)
    assert Client(trace.write(tmp_path)).launches()["name"].tolist() == [long_name, "?", "(graph)", "alike", "alike"]
    del trace.records[2]  # the second piece
    lacking = Client(trace.write(tmp_path)).launches()["name"][0]
    assert lacking == long_name[:40] + "..."


@pytest.mark.parametrize(
    "content, says",
    [
        (b"", "0 bytes"),
        (b"SLTRACE2", "8 bytes"),
        (b"PK\3\4" + bytes(5000), "no trace"),
        (b"SLTRACE1" + bytes(5000), "SLTRACE1, not SLTRACE2"),
        (b"SLTRACE2" + bytes(5000), "does not describe its records"),
        (header_page(np.zeros(1, SCHEMA.header)).replace(bytes(8), b"SLTRACE2", 1), "records of 0 bytes"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, content, says):
    path = tmp_path / "1.sltrace"
    path.write_bytes(content)
    text = refused(1, Client, path)
    assert says in text and str(path) in text


def test_jobs_of_a_killed_process_and_gates_of_the_other(tmp_path):
    low, high = TraceFile(1, priority=0), TraceFile(2, priority=1)
    high.job(100, 200, 1).job(150, 300, 2)  # overlapping: from two threads
    high.job(400, None, 3)
    high.launch(450, 500)
    low.hold(120, 290, 1, holder=2)
    other_device = TraceFile(3, priority=9, device_uuid=b"\2" * 16).job(0, 1000, 1)
    for trace in (low, high, other_device):
        trace.write(tmp_path / "trace")
    clients = {client.pid: client for client in read_run(tmp_path).clients}
    jobs = clients[2].jobs()
    assert jobs["finished"].tolist() == [True, True, False]
    assert (jobs["end_ns"] - BEGIN_NS).tolist() == [200, 300, 500]
    gates = clients[1].gates()
    assert (gates[["begin_ns", "end_ns"]] - BEGIN_NS).values.tolist() == [[100, 300], [400, 500]]
    assert gates["holder_pid"].tolist() == [2, 2]
    assert clients[2].gates().empty and clients[3].gates().empty
    hold = clients[1].holds().iloc[0]
    assert (hold.reason, hold.holder_pid, hold.gate) == ("gate", 2, 1)


def test_a_job_that_was_expected_is_no_longer_than_it_took(tmp_path):
    """Gates close before a job that was announced or predicted, and for some that do not come."""
    low, high = TraceFile(1, priority=0), TraceFile(2, priority=1)
    high.job(100, 200, 1, began=130).job(300, 350, 2, began=-1).job(400, 500, 3, began=400)
    for trace in (low, high):
        trace.write(tmp_path / "trace")
    clients = {client.pid: client for client in read_run(tmp_path).clients}
    jobs = clients[2].jobs()
    assert jobs["job"].tolist() == [1, 3]
    assert (jobs["begin_ns"] - BEGIN_NS).tolist() == [130, 400]
    gates = clients[1].gates()
    assert (gates["begin_ns"] - BEGIN_NS).tolist() == [100, 300, 400]


def test_steps_and_the_windows_in_them(tmp_path):
    """Gates that open in the middle of a job are not closed then."""
    low, high = TraceFile(1, priority=0), TraceFile(2, priority=1)
    high.step(110, 130, 1).step(130, 150, 1).step(150, 400, 2)
    high.window(130, 140, 1).window(150, 155, 1).window(480, 490, 9)
    high.job(100, 400, 1).job(500, 600, 2).job(700, None, 3).window(710, 720, 3)
    high.launch(750, 760)
    for trace in (low, high):
        trace.write(tmp_path / "trace")
    clients = {client.pid: client for client in read_run(tmp_path).clients}
    steps = clients[2].steps()
    assert (steps["end_ns"] - steps["begin_ns"]).tolist() == [20, 20, 250]
    assert steps["kind"].tolist() == [1, 1, 2]
    assert clients[1].steps().empty
    gates = clients[1].gates()
    closed = (gates[["begin_ns", "end_ns"]] - BEGIN_NS).values.tolist()
    assert closed == [[100, 130], [140, 150], [155, 400], [500, 600], [700, 710], [720, 760]]
    assert clients[2].jobs()["job"].tolist() == [1, 2, 3]


def test_closings_that_touch_are_one(tmp_path):
    """Else every job of a busy server would be a closing of its own."""
    low = Client(TraceFile(11, 0).write(tmp_path))
    high = Client(TraceFile(12, 1).job(0, 100, 1).job(100, 200, 2).job(300, 400, 3).write(tmp_path))
    low._rivals = [high]
    gates = low.gates()
    assert [(b - BEGIN_NS, e - BEGIN_NS) for b, e in zip(gates["begin_ns"], gates["end_ns"])] == [(0, 200), (300, 400)]


def test_slices_that_touch_share_a_lane():
    lanes = Lanes()
    assert lanes.place(np.array([0, 5, 10, 12]), np.array([10, 12, 20, 13])).tolist() == [0, 1, 0, 1]
    assert lanes.place(np.array([20, 20]), np.array([25, 25])).tolist() == [0, 1]


def test_job_of_which_the_begin_was_lost(tmp_path):
    trace = TraceFile(1).job(10, 20, 1)
    del trace.records[0]
    job = Client(trace.write(tmp_path)).jobs().iloc[0]
    assert (job.begin_ns, job.end_ns, job.finished) == (BEGIN_NS + 10, BEGIN_NS + 20, True)


def test_clock_steps(tmp_path):
    second, hour = 10**9, 3600 * 10**9
    trace = TraceFile(1).clock(0).clock(second).clock(2 * second, -hour).clock(3 * second, -hour)
    trace.clock(4 * second, hour)
    clock = Client(trace.write(tmp_path)).clock
    assert clock.steps() == [(BEGIN_NS + 2 * second, -hour), (BEGIN_NS + 4 * second, 2 * hour)]
    assert clock.to_real(BEGIN_NS + second // 2) == REALTIME_NS + second // 2
    # A look at the clocks counts from its own moment on.
    assert clock.to_real(BEGIN_NS + 2 * second) == REALTIME_NS + 2 * second - hour
    for at, step in ((1.5, 0), (2.5, -hour), (4.5, hour)):
        monotonic = BEGIN_NS + int(at * second)
        real = REALTIME_NS + int(at * second) + step
        assert clock.to_real(monotonic) == real
        assert clock.to_monotonic(real) == monotonic
        assert clock.to_monotonic(np.array([real])).tolist() == [monotonic]


def test_run_without_a_trace(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps({"models": [{"model": "resnet50", "pid": 7}]}))
    run = read_run(tmp_path)
    assert run.clients == [] and run.models == [("resnet50", 7)]


def test_run_by_its_folder_or_its_trace_folder(tmp_path):
    TraceFile(7).write(tmp_path / "trace")
    (tmp_path / "models_pid.json").write_text('[["resnet50", 7]]')
    for folder in (tmp_path, tmp_path / "trace"):
        run = read_run(folder)
        assert (run.folder, run.clients[0].label) == (tmp_path, "resnet50 (7)")
        assert run.clients[0].launches().empty and run.clients[0].kernels().empty
        assert run.clients[0].jobs().empty and run.clients[0].holds().empty


def test_folders_that_hold_no_run(tmp_path):
    assert "not a folder" in refused(2, read_run, tmp_path / "none")
    assert "holds no run" in refused(2, read_run, tmp_path)
    (tmp_path / "models_pid.json").write_text('[["resnet50"]]')
    assert "models_pid.json" in refused(1, read_run, tmp_path)


def write_log(folder, lines):
    (folder / "gpu.log").write_text("".join(lines))


def times(frame):
    return [[c, b - BEGIN_NS] for c, b in frame[["correlation", "begin_ns"]].values.tolist()]


def test_simulated_executions_by_order_of_the_stream(tmp_path):
    trace = simulated(5)
    for issue, stream in ((0, 1), (10, 2), (20, 1)):
        trace.launch(issue, issue + 1, stream=stream)
    trace.launch(30, 31, stream=1, graph=True)
    trace.launch(40, 41, stream=1, result=719)  # refused by the driver: never on the GPU
    trace.launch(50, 51, stream=1)
    client = Client(trace.write(tmp_path), gpu_log=tmp_path / "gpu.log")
    write_log(
        tmp_path,
        [
            log_line("switch", 5, 0, 0, 0, 0),
            log_line("kernel", 5, 1, 1, 100, 110, "kernel"),
            log_line("kernel", 6, 1, 1, 105, 110, "kernel"),
            log_line("wait", 5, 1, 2, 110, 115),
            log_line("kernel", 5, 2, 1, 120, 130, "kernel"),
            log_line("kernel", 5, 1, 3, 130, 140, "kernel"),
            log_line("kernel", 5, 1, 4, 140, 150, "a"),
            log_line("copy", 5, 1, 4, 150, 160),
            log_line("kernel", 5, 1, 4, 160, 170, "b"),
            log_line("graph", 5, 1, 4, 140, 170, "1"),
            log_line("kernel", 5, 1, 5, 170, 180, "kernel"),
            "kernel 5 1 6 99",
        ],
    )
    execs = client.execs().sort_values("begin_ns")
    assert times(execs) == [[1, 100], [2, 120], [3, 130], [4, 140], [4, 160], [6, 170]]
    assert execs["node"].tolist() == [0, 0, 0, 1, 2, 0]
    assert client.kernels()["graph"].tolist() == [False, False, False, True, True, False]
    assert client.waits().values.tolist() == [[BEGIN_NS + 110, BEGIN_NS + 115, 1]]


def test_a_simulated_trace_without_the_log_of_the_gpu_says_so(tmp_path):
    """A simulated GPU that ran already writes no log: a trace without kernels must not pass for a run without any."""
    trace = simulated(5)
    trace.launch(0, 1)
    client = Client(trace.write(tmp_path), gpu_log=tmp_path / "gpu.log")
    assert (client.exec_source, len(client.execs()), len(client.waits())) == (0, 0, 0)
    assert "no gpu.log" in client.note
    write_log(tmp_path, [log_line("kernel", 5, 7, 1, 100, 101, "kernel")])
    assert (client.exec_source, len(client.execs()), client.note) == (2, 1, "")


def test_a_lost_launch_does_not_shift_the_later_ones(tmp_path):
    """All launches are queued before the first one runs: only their numbers tell."""
    trace = simulated(5)
    for i in range(6):
        trace.launch(i, i + 1)
    del trace.records[2]  # the second launch: the name is the first record
    client = Client(trace.write(tmp_path), gpu_log=tmp_path / "gpu.log")
    write_log(tmp_path, [log_line("kernel", 5, 7, i + 1, 100 + i, 101 + i, "kernel") for i in range(6)])
    assert times(client.execs()) == [[1, 100], [3, 102], [4, 103], [5, 104], [6, 105]]


def test_lost_launches_of_several_streams(tmp_path):
    """With several streams the numbers do not tell of which one a launch is missing, but no kernel
    begins before its launch, and kernels have names."""
    trace = simulated(5)
    trace.name("kernel")
    trace.name("other")
    for i in range(4):
        trace.launch(i * 100, i * 100 + 1, ("kernel", "other")[i % 2], stream=1)
        trace.launch(i * 100 + 50, i * 100 + 51, stream=2)
    del trace.records[2:4]  # the first launch of each stream
    client = Client(trace.write(tmp_path), gpu_log=tmp_path / "gpu.log")
    write_log(
        tmp_path,
        [log_line("kernel", 5, 1, i + 1, 1000 + i, 1001 + i, ("kernel", "other")[i % 2]) for i in range(4)]
        + [log_line("kernel", 5, 2, i + 1, i * 100 + 60, i * 100 + 70, "kernel") for i in range(4)],
    )
    assert times(client.execs().sort_values("correlation")) == [
        [3, 1001],
        [4, 160],
        [5, 1002],
        [6, 260],
        [7, 1003],
        [8, 360],
    ]


def test_simulated_without_a_log(tmp_path):
    trace = simulated(5)
    trace.launch(0, 1)
    trace.write(tmp_path)
    assert Client(tmp_path / "5.sltrace").execs().empty
    write_log(tmp_path, ["this is no log\n"])
    client = Client(tmp_path / "5.sltrace", gpu_log=tmp_path / "gpu.log")
    assert "gpu.log" in refused(1, client.execs)


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The file with some bytes of another value: anywhere, or only in the description of the records, as text."""
    page = bytearray(content)
    text = page.index(b"\0", fmt.SCHEMA_OFFSET) - fmt.SCHEMA_OFFSET
    for _ in range(draw.choice((1, 3, 30))):
        if draw.random() < 0.5:
            place = fmt.SCHEMA_OFFSET + draw.randrange(text)
            page[place] = draw.choice(b": \nabnuikfSV0123456789,|<")
        else:
            page[draw.randrange(len(fmt.MAGIC), len(page))] = draw.randrange(256)
    if draw.random() < 0.2:
        page[len(fmt.MAGIC) : fmt.HEADER_SIZE] = draw.randbytes(fmt.HEADER_SIZE - len(fmt.MAGIC))
    return bytes(page)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_read_or_refused_in_one_line(tmp_path, seed, capsys):
    """Prevents: a traceback, whatever bytes a file has."""
    draw = random.Random(seed)
    trace = TraceFile(4711)
    trace.record(fmt.LAUNCH, correlation=1, begin=10, end=20)
    trace.record(fmt.EXEC, correlation=1, begin=30, end=40)
    trace.record(fmt.HOLD, flags=1, correlation=2, begin=50, end=60)
    trace.record(fmt.JOB_BEGIN, correlation=1, begin=5)
    trace.record(fmt.CLOCK, begin=70, end=80)
    trace.write(tmp_path)
    [path] = tmp_path.glob("*.sltrace")
    whole = path.read_bytes()
    for _ in range(150):
        path.write_bytes(damaged(whole, draw))
        code = main([str(tmp_path)])
        said = capsys.readouterr().err
        assert (code, said) == (0, "") or (code == 1 and said.count("\n") == 1), said
