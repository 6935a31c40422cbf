"""`sluice parse` on tables as NVIDIA documents them, and on what happens to them."""

import csv
import json
import random
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("pandas", reason="./x reports fetches it")
pytest.importorskip("matplotlib", reason="./x reports fetches it")
pytest.importorskip("pyarrow", reason="./x reports fetches it")

from sluice_tools.parse import kernel_csv
from sluice_tools.parse.cli import main
from sluice_tools.parse.models import csv_rows
from sluice_tools.parse.queue_depth import queue_depth
from sluice_tools.trace import format as fmt
from sluice_tools.trace.depth import Depth
from trace_files import TraceFile

HEADS = [
    "API Start (ns)", "API Dur (ns)", "Queue Start (ns)", "Queue Dur (ns)", "Kernel Start (ns)", "Kernel Dur (ns)",
    "Total Dur (ns)", "PID", "TID", "DevId", "API Function", "GridXYZ", "BlockXYZ", "Kernel Name",
]  # fmt: skip
NAME = "void at::native::elementwise_kernel<(int)128, (int)2>(int, T3)"


def row(pid, issue, api, start, duration, name=NAME):
    queued = start > issue + api
    return [
        issue,
        api,
        issue + api if queued else "",
        start - issue - api if queued else "",
        start,
        duration,
        start + duration - issue,
        pid,
        pid,
        0,
        "cudaLaunchKernel",
        " 148    1    1",
        " 256    1    1",
        name,
    ]


ROWS = [
    row(11, 1_000, 500, 2_000, 1_000),
    row(12, 1_200, 300, 3_000, 4_000_000),
    row(11, 1_600, 500, 5_000_000, 2_000),
    row(11, 2_200, 500, 2_300, 6_000),
]
FIRST = ["1000,1500,2000,3000,1000", "1600,2100,5000000,5002000,2000", "2200,2700,2300,8300,6000"]
PIDS = [["resnet50", 11], ["bert", 12]]


class Parse:
    def __init__(self, folder, capsys):
        self.folder, self._capsys = folder, capsys
        (folder / "models_pid.json").write_text(json.dumps(PIDS, indent=4))

    def write(self, rows=ROWS, heads=HEADS, text=None):
        self.csv = self.folder / "run_kernexectrace.csv"
        with self.csv.open("w", newline="") as file:
            if text is not None:
                file.write(text)
            else:
                csv.writer(file, lineterminator="\n").writerows([heads, *rows])
        return self

    def __call__(self, *args):
        """Exit code, standard output, standard error."""
        args = args or ("-f", str(self.csv))
        code = main([*map(str, args), "--out", str(self.folder / "out")])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def result(self, *args):
        code, out, err = self("-f", str(self.csv), "--json", "--no-pictures", *args)
        assert code == 0, err
        self.err = err
        result = json.loads(out)
        self.out = self.folder / "out" / result["folder"].split("/")[-1]
        return result

    def table(self, stem):
        return (self.out / f"{stem}.csv").read_text().splitlines()

    def refused(self, code, *args):
        found, out, err = self(*args)
        assert (found, out) == (code, ""), err
        assert err.count("\n") == 1 and err.startswith("sluice parse: ")
        left = self.folder / "out"
        assert not left.exists() or not list(left.iterdir()), "a folder was left behind"
        return err


@pytest.fixture
def parse(tmp_path, capsys):
    return Parse(tmp_path, capsys)


def same_as_the_plain_one(parse, **options):
    result = parse.result()
    assert parse.table("resnet50_11")[1:] == FIRST
    assert [m["kernels"] for m in result["models"]] == [3, 1]
    return result


def test_the_published_files(parse):
    code, out, err = parse.write()()
    assert (code, err) == (0, "")
    (folder,) = (parse.folder / "out").iterdir()
    assert folder.name.startswith("run_kernexectrace.csv_20") and len(folder.name) == 21 + 15
    assert (folder / "resnet50_11.csv").read_text().splitlines() == [
        "IssueStart,IssueEnd,ExecutionStart,ExecutionEnd,KernelDur",
        *FIRST,
    ]
    assert (folder / "summary.log").read_text() == (
        "NumKernels:\nresnet50_11 3\nbert_12 1\nMedianKernelDur:\nresnet50_11 2000.0\nbert_12 4000000.0\n"
    )
    assert (folder / "resnet50_11_queue_delay.csv").read_text() == (
        "IssueStart,QueueDelay\n1000,500\n1600,4997900\n2200,0\n"
    )
    assert {path.name for path in folder.glob("*.png")} == {"cdf.png", "queue_depth.png", "queue_delay.png"}
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in folder.glob("*.png"))
    assert str(folder) in out


def test_heads_without_units_in_any_order_with_others_between(parse):
    order = list(range(len(HEADS)))
    random.Random(1).shuffle(order)
    heads = [HEADS[i].replace(" (ns)", "") for i in order]
    rows = [[f"x{n}", *(r[i] for i in order)] for n, r in enumerate(ROWS)]
    same_as_the_plain_one(parse.write(rows, ["Row#", *heads]))


@pytest.mark.parametrize("column", kernel_csv.NEEDED)
def test_a_missing_column_is_named(parse, column):
    place = [head.replace(" (ns)", "") for head in HEADS].index(column)
    rows = [r[:place] + r[place + 1 :] for r in ROWS]
    assert f"'{column}'" in parse.write(rows, HEADS[:place] + HEADS[place + 1 :]).refused(2)


@pytest.mark.parametrize(
    "text, says, code",
    [
        ("", "is empty", 2),
        ("hello\nthere\n", "no line with the heads", 2),
        (",".join(HEADS) + "\n", "no kernel", 1),
        (",".join(HEADS), "no kernel", 1),
    ],
)
def test_files_without_kernels(parse, text, says, code):
    assert says in parse.write(text=text).refused(code)


def test_no_file(parse):
    assert "nothing.csv" in parse.refused(2, "-f", parse.folder / "nothing.csv")
    parse.write()
    assert "none.json" in parse.refused(2, "-f", parse.csv, "-p", parse.folder / "none.json")
    (parse.folder / "models_pid.json").write_text("[[")
    assert "models_pid.json" in parse.refused(1)


def test_what_nsys_prints_before_the_table(parse):
    text = parse.write().csv.read_text()
    same_as_the_plain_one(
        parse.write(
            text="Generating SQLite file run.sqlite\nProcessing [run.sqlite] with [kernexectrace.py]...\n\n" + text
        )
    )


def rewritten(sep=",", number: Callable = str, quote=False):
    """The table with its times as another program would write them."""
    lines = [sep.join(HEADS)]
    for r in ROWS:
        cells = [number(cell) if isinstance(cell, int) and i < 7 else str(cell) for i, cell in enumerate(r)]
        cells[-1] = f'"{cells[-1]}"'
        lines.append(sep.join(f'"{c}"' if quote and i < 7 else c for i, c in enumerate(cells)))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        rewritten(";"),
        rewritten("\t"),
        rewritten(",", "{:,}".format, quote=True),
        rewritten(";", lambda n: f"{n:,}".replace(",", ".")),
        rewritten(";", lambda n: f"{n:,}".replace(",", "\u202f")),
        rewritten(";", lambda n: f"{n:,}".replace(",", "'")),
        rewritten(";", lambda n: f"{n},0"),
        rewritten(";", lambda n: f"{n:,}".replace(",", ".") + ",00"),
        rewritten(",", lambda n: f"{n}.0"),
        rewritten().replace("\n", "\r\n"),
        "\ufeff" + rewritten(),
        rewritten().replace(",,,", ",None,None,"),
        rewritten().rstrip("\n"),
        rewritten().replace("\n", "\n\n"),
    ],
    ids=[
        "semicolons",
        "tabs",
        "thousands by comma",
        "thousands by dot",
        "thousands by narrow space",
        "thousands by apostrophe",
        "decimal comma",
        "decimal comma and dots",
        "decimal dot",
        "Windows line ends",
        "byte order mark",
        "None",
        "no last line end",
        "blank lines",
    ],
)
def test_other_locales_and_programs(parse, text):
    result = same_as_the_plain_one(parse.write(text=text))
    assert result["rows_left_out"] == 0


def test_other_encodings_of_the_whole_file(parse):
    parse.write().csv.write_bytes(rewritten(";").encode("utf-16"))
    same_as_the_plain_one(parse)


@pytest.mark.parametrize("unit, decimals", [("us", 3), ("ms", 6), ("s", 9)])
def test_times_in_another_unit(parse, unit, decimals):
    """nsys stats --timeunit us."""
    text = rewritten(",", lambda n: f"{n / 10**decimals:.{decimals}f}").replace("(ns)", f"({unit})")
    same_as_the_plain_one(parse.write(text=text))
    text = rewritten(";", lambda n: f"{n / 10**decimals:.{decimals}f}".replace(".", ",")).replace("(ns)", f"({unit})")
    same_as_the_plain_one(parse.write(text=text))


def test_rows_that_were_cut_off_or_hold_nothing_are_counted(parse, monkeypatch):
    """Also in a later chunk, where the fast path has been under way."""
    monkeypatch.setattr(kernel_csv, "CHUNK_ROWS", 2)
    lines = rewritten().splitlines()
    lines.insert(4, "oops")
    result = same_as_the_plain_one(parse.write(text="\n".join(lines) + "\n1000,50"))
    assert result["rows_left_out"] == 2
    assert "2 rows without a time" in parse.err


def test_kernel_names_with_commas_that_are_not_quoted(parse):
    same_as_the_plain_one(parse.write(text=rewritten().replace('"', "")))


def test_an_unknown_pid_is_named_and_counted(parse):
    result = parse.write([*ROWS, row(99, 9_000, 1, 9_100, 5), row(99, 9_200, 1, 9_300, 5)]).result()
    assert result["unknown_pids"] == {"99": 2}
    assert "pid 99" in parse.err and "2 kernels" in parse.err
    assert len(parse.table("unknown_99")) == 3
    assert "unknown_99 2" in (parse.out / "summary.log").read_text()


def test_two_models_of_one_name(parse):
    (parse.folder / "models_pid.json").write_text('[["resnet50", 11], ["resnet50", 12]]')
    parse.write().result()
    assert len(parse.table("resnet50_11")) == 4 and len(parse.table("resnet50_12")) == 2


def test_a_model_name_with_a_slash(parse):
    (parse.folder / "models_pid.json").write_text('[["../up", 11], ["bert", 12]]')
    parse.write().result()
    assert len(parse.table(".._up_11")) == 4


def test_chunks_change_nothing(parse, monkeypatch):
    rows = [row(11 + i % 2, i * 100, 50, i * 150 + 100, 10 + i % 7) for i in range(1000)]
    whole = parse.write(rows).result()
    tables = parse.table("resnet50_11"), parse.table("queue_depth")
    monkeypatch.setattr(kernel_csv, "CHUNK_ROWS", 7)
    in_parts = parse.result()
    assert (parse.table("resnet50_11"), parse.table("queue_depth")) == tables
    assert whole["models"] == in_parts["models"]


def intervals(begin, end) -> Depth:
    found = Depth()
    found.add(np.array(begin), np.array(end))
    return found


def test_queue_depth():
    """Two kernels issued at 0, one more at 40; the first ends at 20, the others at 60 and 100."""
    depth = queue_depth(intervals([0, 0, 40], [20, 60, 100]), 0, 100, bins=5)
    assert depth["BinStart"].tolist() == [0, 20, 40, 60, 80]
    assert depth["MeanDepth"].tolist() == [2, 1, 2, 1, 1]
    assert depth["MaxDepth"].tolist() == [2, 1, 2, 1, 1]
    depth = queue_depth(intervals([5], [7]), 0, 100, bins=5)
    assert depth["MeanDepth"].tolist() == [0.1, 0, 0, 0, 0] and depth["MaxDepth"].tolist() == [1, 0, 0, 0, 0]


def test_one_kernel_at_a_time_is_a_depth_of_one():
    """Where one ends in the nanosecond in which the next is issued."""
    depth = queue_depth(intervals(range(0, 1000, 10), range(10, 1010, 10)), 0, 1000, bins=10)
    assert depth["MaxDepth"].max() == 1 and depth["MeanDepth"].tolist() == [1] * 10


def test_digits():
    """The fast writer of whole numbers against Python's."""
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 10 ** int(digits), 20_000) for digits in (1, 4, 5, 12, 16)]
    columns[2][:3] = 0, 9_999, 10_000
    text = "".join(",".join(map(str, values)) + "\n" for values in zip(*(c.tolist() for c in columns)))
    assert csv_rows(columns).decode() == text
    assert csv_rows([np.array([-1, 10**17]), np.array([0, 1])]) == b"-1,0\n100000000000000000,1\n"


LOG = """device: 0 GPU
configuration: input.json
model: resnet50
{"model_name": "resnet50", "resize": false, "resize_size": [720, 1280]}
JCT 1680298829288750242 1 39.5

1680298830249579 kernelGroupStart

JCT 1680298830288750242 1 40.5

JCT 16802988"""


def test_completion_times_of_published_logs(parse):
    """Logs without a results.json, the last line cut off by SIGKILL."""
    (parse.folder / "logs").mkdir()
    (parse.folder / "logs" / "model_B.log").write_text(LOG)
    figures = parse.write().result()["models"][0]
    assert (figures["jobs"], figures["jct_p50_ms"]) == (2, 40.0)
    assert parse.table("jct") == [
        "Model,Pid,Arrival,End,JCT",
        "resnet50,11,1680298829249250242,1680298829288750242,39.5",
        "resnet50,11,1680298830248250242,1680298830288750242,40.5",
    ]
    code, _, err = parse()
    assert (code, err) == (0, "")
    assert len(list((parse.folder / "out").glob("*/jct.png"))) == 1


def a_run(folder):
    """A simulated run of known times: its GPU is ten times slower than real."""
    for pid, priority in ((11, 0), (12, 1)):
        trace = TraceFile(pid, priority, time_scale=10.0, simulated=1)
        for i in range(4):
            trace.kernel(i * 100_000, 10_000 + i * 100_000, 60_000 + i * 100_000, f"k{i % 2}", issue_dur=2_000)
        trace.write(folder / "trace")
    (folder / "models_pid.json").write_text(json.dumps(PIDS))
    (folder / "results.json").write_text(
        json.dumps(
            {
                "time_scale": 10.0,
                "models": [{"log": "model_A", "model": "resnet50", "pid": 11, "log_file": "./logs/model_A.log"}],
            }
        )
    )
    (folder / "model_A.log").write_text(LOG)
    (folder / "model_A.csv").write_text(
        "start_timestamp_ns,end_timestamp_ns,jct_ms,a,b\n1,2,3,0,0\n"
        "1680298829000000000,1680298829288750242,28.8,0,0\n1680298829"
    )
    return folder


def test_a_run_of_ours_in_the_time_of_the_gpu(parse):
    parse.csv = a_run(parse.folder)
    result = parse.result()
    assert result["simulated"] is True
    assert parse.table("resnet50_11")[1:3] == ["0,200,1000,6000,5000", "10000,10200,11000,16000,5000"]
    assert result["models"][0] | {"jct_p50_ms": 0, "jct_p99_ms": 0} == {
        "model": "resnet50",
        "pid": 11,
        "kernels": 4,
        "median_kernel_ns": 5000.0,
        "queue_delay_p50_ns": 800.0,
        "queue_delay_p99_ns": 800.0,
        "queue_depth_mean": pytest.approx(24 / 36, abs=1e-3),
        "queue_depth_max": 1,
        "jobs": 1,
        "jct_p50_ms": 0,
        "jct_p99_ms": 0,
    }
    assert parse.table("jct")[1].endswith("1680298829000000000,1680298829288750242,28.8")
    code, out, _ = parse(str(parse.csv))
    assert code == 0 and "simulated" in out


def test_arrivals_from_the_log_of_a_simulated_run(parse):
    """The JCT is in the time of the GPU, the end of the job in real time."""
    parse.csv = a_run(parse.folder)
    (parse.folder / "model_A.csv").unlink()
    parse.result()
    assert parse.table("jct")[1] == "resnet50,11,1680298828893750242,1680298829288750242,39.5"


def test_the_tables_of_a_run_go_into_its_folder(parse, monkeypatch, capsys):
    """They once went into the working directory, which is nobody's to fill."""
    folder = a_run(parse.folder / "run")
    (parse.folder / "elsewhere").mkdir()
    monkeypatch.chdir(parse.folder / "elsewhere")
    assert main([str(folder), "--no-pictures"]) == 0
    assert list((parse.folder / "elsewhere").iterdir()) == []
    assert len(list(folder.glob("run_20*"))) == 1


def test_a_run_that_has_no_trace_or_no_times(parse):
    assert "--trace" in parse.refused(1, parse.folder)
    TraceFile(11, exec_source=fmt.EXEC_NONE, note=b"built without CUPTI").write(parse.folder / "trace")
    assert "built without CUPTI" in parse.refused(1, parse.folder)


def test_usage(parse):
    assert "one thing" in parse.refused(2, "--json")
