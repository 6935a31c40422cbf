"""`sluice trace`: its viewer files and its table."""

import collections
import gzip
import itertools
import json

import pytest

pytest.importorskip("pandas", reason="./x reports fetches it")

from sluice_tools.trace import format as fmt
from sluice_tools.trace.cli import main
from trace_files import TraceFile, log_line


class Trace:
    def __init__(self, folder, capsys):
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *args):
        code = main([str(self.folder), *map(str, args)])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def fine(self, *args):
        code, out, err = self(*args)
        assert code == 0, err
        return out

    def refused(self, code, *args):
        found, out, err = self(*args)
        assert (found, out, err.count("\n")) == (code, "", 1), err
        return err

    def events(self, name="seen.json"):
        path = self.folder / name
        self.fine("-o", path)
        data = path.read_bytes()
        return json.loads(gzip.decompress(data) if name.endswith(".gz") else data)["traceEvents"]


@pytest.fixture
def trace(tmp_path, capsys):
    return Trace(tmp_path, capsys)


@pytest.fixture
def pair(trace):
    """A critical client whose job closes the gate, in which it dies, and one that waits for it. Two
    kernels of the low one run at the same time on one stream, as those of a graph may."""
    low, high = TraceFile(11, 0, "event:2"), TraceFile(12, 1)
    high.job(1_000, 9_000, 1).job(50_000, None, 2)
    high.kernel(2_000, 4_000, 8_000, 'a "quoted"\\name')
    low.kernel(100, 6_000, 7_000)
    low.hold(1_500, 9_100, 2, holder=12)
    graph = low.launch(9_200, 9_300, graph=True)
    low.exec(10_000, 20_000, graph, "first", node=1).exec(15_000, 18_000, graph, "second", node=2)
    low.launch(60_000, 60_100, "never run")
    low.exec(70_000, 70_000, 999, "of a launch that was lost")
    low.hold(61_000, 62_000, 3, why=3, tid=77)
    for client in (low, high):
        client.write(trace.folder / "trace")
    (trace.folder / "models_pid.json").write_text('[["resnet50", 11], ["bert", 12]]')
    return trace


def checked(events):
    """What a viewer relies on. Returns the slices of each track by (process, track) name."""
    process, track = {}, {}
    for event in events:
        assert event["ph"] in "MXsf"
        if event["ph"] == "M" and event["name"] == "process_name":
            process[event["pid"]] = event["args"]["name"]
        if event["ph"] == "M" and event["name"] == "thread_name":
            place = event["pid"], event["tid"]
            assert place not in track
            track[place] = event["args"]["name"]
    slices, arrows = collections.defaultdict(list), collections.defaultdict(list)
    for event in events:
        place = event["pid"], event["tid"]
        if event["ph"] == "X":
            assert event["dur"] >= 0 and event["name"]
            slices[process[place[0]], track[place]].append(event)
        elif event["ph"] in "sf":
            arrows[event["id"]].append(event)
    assert len(set(track.values())) <= len(track) and len(slices) == len(track), "an empty track"
    for of_track in slices.values():
        for one, next_one in itertools.pairwise(of_track):
            assert one["ts"] + one["dur"] <= next_one["ts"] + 1e-9, "slices out of order, or overlapping"
    begins = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    for pair in arrows.values():
        assert [e["ph"] for e in sorted(pair, key=lambda e: e["ph"], reverse=True)] == ["s", "f"]
        leave, arrive = sorted(pair, key=lambda e: e["ph"], reverse=True)
        assert leave["ts"] <= arrive["ts"] and leave["pid"] == arrive["pid"]
        assert arrive["bp"] == "e"
        assert all((e["pid"], e["tid"], e["ts"]) in begins for e in pair), "an arrow at no slice"
    return slices, arrows


def names(slices, process):
    return {track: [event["name"] for event in events] for (of, track), events in slices.items() if of == process}


@pytest.mark.parametrize("name", ["seen.json", "seen.json.gz"])
def test_chrome_file(pair, name):
    slices, arrows = checked(pair.events(name))
    assert names(slices, "resnet50 (11)") == {
        "gate closed": ["by bert (12)", "by bert (12)"],
        "held, thread 11": ["gate: bert (12)"],
        "held, thread 77": ["sync point"],
        "thread 11: launches": ["kernel", "(graph)", "never run"],
        "GPU stream 7": ["kernel", "first", "of a launch that was lost"],
        "GPU stream 7 (2)": ["second"],
    }
    assert names(slices, "bert (12)")["jobs"] == ["job 1", "job 2 (killed)"]
    assert names(slices, "bert (12)")["GPU stream 7"] == ['a "quoted"\\name']
    assert len(arrows) == 3
    kernel = slices["resnet50 (11)", "GPU stream 7"][0]
    assert (kernel["ts"], kernel["dur"], kernel["args"]) == (6.0, 1.0, {"correlation": 1, "node": 0})


def test_a_part_of_a_run(pair):
    """Slices that reach into it, whole; an arrow only where both its ends are in it."""
    pair.fine("-o", pair.folder / "part.json", "--from", "6.5e-6", "--to", "9.15e-6")
    slices, arrows = checked(json.loads((pair.folder / "part.json").read_text())["traceEvents"])
    assert names(slices, "resnet50 (11)") == {
        "gate closed": ["by bert (12)"],
        "held, thread 11": ["gate: bert (12)"],
        "GPU stream 7": ["kernel"],
    }
    assert names(slices, "bert (12)") == {
        "jobs": ["job 1"],
        "thread 12: launches": ['a "quoted"\\name'],
        "GPU stream 7": ['a "quoted"\\name'],
    }
    assert len(arrows) == 1


@pytest.mark.parametrize("ending", ["json", "json.gz", "perfetto-trace"])
def test_a_part_in_which_nothing_was_recorded(pair, ending):
    """An empty file would open as an empty view, and nobody knows why."""
    if ending == "perfetto-trace":
        pytest.importorskip("perfetto")
    said = pair.refused(2, "-o", pair.folder / f"part.{ending}", "--from", "3", "--to", "4")
    assert "the trace ends after" in said
    assert not list(pair.folder.glob("*part*"))


def test_perfetto_file(pair):
    """The same tracks and slices, in a valid message: begin and end in pairs, every name and track
    told before its use, arrows in pairs."""
    pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="./x reports fetches it")
    path = pair.folder / "seen.perfetto-trace"
    pair.fine("-o", path)
    whole = pb.Trace()
    whole.ParseFromString(path.read_bytes())
    tracks, texts, slices = {}, {}, collections.defaultdict(list)
    leaving, arriving, opened, latest = [], [], {}, {}
    for packet in whole.packet:
        sequence = packet.trusted_packet_sequence_id
        if packet.sequence_flags & pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
            texts[sequence] = {}
        if packet.HasField("track_descriptor"):
            told = packet.track_descriptor
            assert told.uuid not in tracks and (not told.parent_uuid or told.parent_uuid in tracks)
            parent = tracks.get(told.parent_uuid, "")
            tracks[told.uuid] = f"{parent}/{told.name or told.process.process_name}"
        for name in packet.interned_data.event_names:
            texts[sequence][name.iid] = name.name
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert packet.timestamp >= latest.get(event.track_uuid, 0)
        latest[event.track_uuid] = packet.timestamp
        if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
            assert event.track_uuid not in opened, "overlapping slices"
            opened[event.track_uuid] = texts[sequence][event.name_iid], packet.timestamp
            leaving += event.flow_ids
            arriving += event.terminating_flow_ids
        else:
            name, begin = opened.pop(event.track_uuid)
            slices[tracks[event.track_uuid]].append((name, begin, packet.timestamp - begin))
    assert not opened
    assert sorted(leaving) == sorted(arriving) and len(set(leaving)) == len(leaving) == 3
    chrome, _ = checked(pair.events())
    assert slices == {
        f"/{process}/{track}": [(e["name"], round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in found]
        for (process, track), found in chrome.items()
    }


def test_perfetto_file_without_the_package(pair, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "perfetto" else name)
    assert ".json" in pair.refused(2, "-o", pair.folder / "seen.perfetto-trace")


def test_csv(pair):
    pair.fine("--csv", pair.folder / "seen.csv")
    lines = (pair.folder / "seen.csv").read_text().splitlines()
    assert lines[0] == (
        "API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),"
        "Kernel Dur (ns),Total Dur (ns),PID,TID,DevId,API Function,GridXYZ,BlockXYZ,"
        "Kernel Name"
    )
    assert lines[1:] == [
        "100,5000,5100,900,6000,1000,6900,11,11,0,cuLaunchKernel,,,kernel",
        '2000,5000,,,4000,4000,6000,12,12,0,cuLaunchKernel,,,"a ""quoted""\\name"',
        "9200,100,9300,700,10000,10000,10800,11,11,0,cuGraphLaunch,,,first",
        "9200,100,9300,5700,15000,3000,8800,11,11,0,cuGraphLaunch,,,second",
    ]


def test_csv_and_run_parse_alike(pair, capsys):
    pytest.importorskip("matplotlib", reason="./x reports fetches it")
    from sluice_tools.parse.cli import main as parse

    pair.fine("--csv", pair.folder / "seen.csv")
    results = []
    for given in (pair.folder, pair.folder / "seen.csv"):
        assert parse([str(given), "--json", "--no-pictures", "--out", str(pair.folder / "out")]) == 0
        results.append(json.loads(capsys.readouterr().out)["models"])
    assert results[0] == results[1]


def test_simulated_times_are_those_of_the_gpu(trace):
    client = TraceFile(5, simulated=1, exec_source=fmt.EXEC_SIMULATOR, time_scale=10.0)
    client.launch(1_000, 2_000)
    client.write(trace.folder / "trace")
    (trace.folder / "trace" / "gpu.log").write_text(
        log_line("wait", 5, 7, 1, 10_000, 30_000) + log_line("kernel", 5, 7, 2, 30_000, 80_000, "kernel")
    )
    trace.fine("--csv", trace.folder / "seen.csv")
    assert (trace.folder / "seen.csv").read_text().splitlines()[1].startswith("100,100,200,2800,3000,5000,7900,5,")
    slices, _ = checked(trace.events())
    (kernel,) = slices["program-5 (5)", "GPU stream 7"]
    assert (kernel["ts"], kernel["dur"]) == (3.0, 5.0)
    (wait,) = slices["program-5 (5)", "GPU stream 7: waits"]
    assert (wait["name"], wait["ts"], wait["dur"]) == ("wait", 1.0, 2.0)


def test_what_was_recorded_and_what_is_missing(trace):
    client = TraceFile(5, lost=3, exec_source=fmt.EXEC_NONE, note=b"built without CUPTI")
    client.clock(0).hole().clock(10**9, step=-7 * 10**9)
    client.launch(0, 1)
    client.write(trace.folder)
    (trace.folder / "models_pid.json").write_text('[["resnet50", 5], ["bert", 6]]')
    out = trace.fine()
    assert "bert (6): no trace" in out and "resnet50 (5): no trace" not in out
    (trace.folder / "models_pid.json").unlink()
    assert "host only" in out and "built without CUPTI" in out
    assert "3 records lost" in out and "1 unfinished" in out
    assert "-7.000 s" in out and "1.0 s after" in out
    assert "built without CUPTI" in trace.refused(1, "--csv", trace.folder / "seen.csv")
    assert not (trace.folder / "seen.csv").exists()
    slices, arrows = checked(trace.events())
    assert names(slices, "program-5 (5)") == {"thread 5: launches": ["kernel"]} and not arrows


def test_refusals(trace):
    assert "holds no run" in trace.refused(2)
    (trace.folder / "results.json").write_text("{}")
    assert "--trace" in trace.refused(1)
    assert ".perfetto-trace" in trace.refused(2, "-o", "seen.txt")
    TraceFile(5).write(trace.folder / "trace")
    nowhere = trace.folder / "none" / "seen.json"
    assert str(nowhere) in trace.refused(1, "-o", nowhere)
    # Not an empty file, nor the whole trace.
    seen = trace.folder / "seen.json"
    assert "nothing is between" in trace.refused(2, "-o", seen, "--from", "3", "--to", "1")
    assert not seen.exists()
    assert "-o FILE" in trace.refused(2, "--from", "1")
    assert "-o FILE" in trace.refused(2, "--csv", seen, "--to", "1")


def test_an_empty_trace(trace):
    """Of a process that never launched: a valid file without a track."""
    TraceFile(5).write(trace.folder / "trace")
    assert [e["ph"] for e in trace.events()] == ["M"] * 3
    trace.fine("--csv", trace.folder / "seen.csv")
    assert len((trace.folder / "seen.csv").read_text().splitlines()) == 1
