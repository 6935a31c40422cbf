"""`sluice doctor`: a check that passes over a fault sends its user searching elsewhere, and one that reports a fault
that is none is soon ignored."""

import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sluice_tools.common import slice_answers
from sluice_tools.common.command import how_to_get
from sluice_tools.common.slice_answers import Answer
from sluice_tools.doctor import checks
from sluice_tools.doctor.checks import OK, PROBLEM, WARNING, Surroundings
from sluice_tools.doctor.cli import examine, main, text_of
from sluice_tools.doctor.slices import _trial_environment, answer_for, slices

UUID = "GPU-00000000-0000-0000-0000-00000000000a"
PROGRAM = os.environ.get("SLUICE_TEST_PROGRAM", "")
GPUS = {
    "driver_version": "13.0",
    "library": "/usr/lib/libcuda.so.1",
    "devices": [{"name": "NVIDIA H200", "uuid": "GPU-1", "memory_bytes": 139 << 30, "compute_mode": "default"}],
}
CLIENT = {"pid": 7, "name": "train", "state": "live", "bypassed": 0, "labels": {"team": "x"}}
STATUS = {"controller": {"pid": 5, "alive": True}, "clients": [CLIENT], "outside": []}
NO_SESSION = {"controller": None}


class Machine:
    """A healthy machine below a folder, with a stand-in for `sluice`; tests break it."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in ("bin", "lib/sluice", "libexec/sluice", "dev/shm", "tmp"):
            (folder / name).mkdir(parents=True)
        for name in ("sluice-worker-torch", "sluice-serve"):
            (folder / "libexec/sluice" / name).touch()
        for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
            (folder / "dev" / name).touch()
        self.library = folder / "lib/sluice/libsluice_intercept.so"
        subprocess.run(["cc", "-shared", "-o", self.library, "-x", "c", "/dev/null"], check=True)
        program = folder / "bin/sluice"
        program.write_text(f'#!/bin/sh\ncat "{folder}/$1.json"\ncat "{folder}/$1.error" >&2 2>/dev/null && exit 1\n:\n')
        program.chmod(0o755)
        self.environment: dict = {"PATH": os.environ["PATH"]}
        self.answer("gpus", GPUS)
        self.answer("status", STATUS)

    def answer(self, command: str, content: dict | None, error: str = "") -> None:
        (self.folder / f"{command}.json").write_text("" if content is None else json.dumps(content))
        if error:
            (self.folder / f"{command}.error").write_text(f"sluice {command}: {error}\n")

    def findings(self, check: str, **how) -> list:
        how.setdefault("has_package", lambda name: True)
        how.setdefault("has_library", lambda name: True)
        about = Surroundings(self.folder / "bin/sluice", self.environment, files=self.folder, **how)
        found = examine(about)
        assert all(bool(finding.todo) == (finding.level != OK) for finding in found)
        assert all("\n" not in finding.said + finding.todo for finding in found)
        return [finding for finding in found if finding.check == check]

    def one(self, check: str, **how):
        (found,) = self.findings(check, **how)
        return found


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path / "machine")


def test_a_healthy_machine_has_no_finding(machine):
    files = ("permissions", "board", "session", "node service")
    for check in ("driver", "gpu", *files, "preload", "mps", "segments", "parts"):
        assert machine.one(check).level == OK
    assert machine.one("gpu").said == "NVIDIA H200, 139 GiB"


def listen_as_node_service(machine) -> None:
    folder = machine.folder / "run/sluice"
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "node.sock"))


def test_without_a_node_service_nothing_is_wrong(machine):
    found = machine.one("node service")
    assert (found.level, found.said) == (OK, "none here: each user has sessions of their own")
    listen_as_node_service(machine)
    machine.environment["SLUICE_NODE_DIR"] = ""
    assert machine.one("node service").said == found.said, "this shell wants none"


def test_a_node_service_is_named_with_its_policy(machine):
    listen_as_node_service(machine)
    machine.answer("status", {**STATUS, "service": "site policy /etc/sluice/node.json"})
    found = machine.one("node service")
    assert (found.level, found.said) == (OK, "pid 5, site policy /etc/sluice/node.json")


def test_a_dead_socket_of_the_node_service_is_a_problem(machine):
    """Every new program of every user then runs ungated."""
    listen_as_node_service(machine)
    machine.answer("status", NO_SESSION)
    found = machine.one("node service")
    assert found.level == PROBLEM and "nobody answers" in found.said and "systemctl start" in found.todo


def test_an_untrusted_node_service_is_a_problem_with_its_reason(machine):
    listen_as_node_service(machine)
    machine.answer("status", None, "the node service in /run/sluice is not trusted: it is bob's")
    found = machine.one("node service")
    assert found.level == PROBLEM and found.said == "the node service in /run/sluice is not trusted: it is bob's"


def test_no_driver_is_a_problem_with_its_reason(machine):
    machine.answer("gpus", None, "no NVIDIA driver found (libcuda.so.1)")
    found = machine.one("driver")
    assert (found.level, found.said) == (PROBLEM, "no NVIDIA driver found (libcuda.so.1)")
    assert machine.findings("gpu") == []


@pytest.mark.parametrize(("version", "level"), [("11.8", PROBLEM), ("12.0", OK)])
def test_an_old_driver_is_a_problem(machine, version, level):
    machine.answer("gpus", {**GPUS, "driver_version": version})
    found = machine.one("driver")
    assert found.level == level and f"CUDA {version}" in found.said


def test_a_missing_device_file_is_a_problem(machine):
    """Containers often lack nvidia-uvm, and the driver then reports no device."""
    (machine.folder / "dev/nvidia-uvm").unlink()
    found = machine.one("permissions")
    assert found.level == PROBLEM and "nvidia-uvm is missing" in found.said


def test_a_device_file_of_others_is_a_problem(machine, monkeypatch):
    real = os.access
    monkeypatch.setattr(checks.os, "access", lambda path, mode: "nvidia0" not in str(path) and real(path, mode))
    found = machine.one("permissions")
    assert found.level == PROBLEM and "nvidia0" in found.said


def test_the_simulated_gpu_needs_no_device_files(machine):
    (machine.folder / "dev/nvidiactl").unlink()
    assert machine.findings("permissions", gpu="sim") == []


def test_no_shared_memory_is_a_problem(machine):
    (machine.folder / "dev/shm").rmdir()
    assert machine.one("board").level == PROBLEM


@pytest.mark.parametrize("name", [f"sluice.{os.geteuid()}.mine", f"sluice-{os.geteuid()}"])
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a file of another user")
def test_a_board_of_another_user_is_a_problem(machine, name):
    """Sluice refuses to use it, and everything runs ungated."""
    (machine.folder / "dev/shm" / name).touch()
    assert machine.one("board", session="mine").level == OK
    os.chown(machine.folder / "dev/shm" / name, 65534, -1)
    found = machine.one("board", session="mine")
    assert found.level == PROBLEM and name in found.said


def test_a_full_shared_memory_is_a_warning(machine, monkeypatch):
    full = os.statvfs_result((4096, 4096, 100000, 5000, 5000, 0, 0, 0, 0, 255))
    monkeypatch.setattr(checks.os, "statvfs", lambda _: full)
    found = machine.one("board")
    assert found.level == WARNING and found.said.endswith("has 19 MiB left")


def test_no_session_is_fine(machine):
    machine.answer("status", NO_SESSION, "no session default")
    found = machine.one("session")
    assert found.level == OK and "sluice exec starts one" in found.said


def test_a_board_that_cannot_be_read_is_a_problem(machine):
    machine.answer("status", None, "the board has layout 9")
    found = machine.one("session")
    assert (found.level, found.said) == (PROBLEM, "the board has layout 9")


@pytest.mark.parametrize("status", (NO_SESSION, STATUS))
def test_a_session_that_is_only_of_this_container_is_a_warning(machine, status):
    """Prevents: "ok" three times in two containers whose programs run ungated next to each other."""
    machine.answer("status", {**status, "apart": "a pid namespace of its own"}, "no session" if not status else "")
    found = machine.findings("session")[0]
    assert found.level == WARNING and "only of this container (a pid namespace" in found.said
    machine.answer("status", {**status, "apart": None})
    assert machine.one("session").level == OK


def test_a_dead_controller_is_a_problem(machine):
    machine.answer("status", {**STATUS, "controller": {"pid": 5, "alive": False}})
    found = machine.one("session")
    assert found.level == PROBLEM and "ungated" in found.said and "process 5" in found.todo


def test_launches_that_may_pass_by_are_a_warning(machine):
    past = {**CLIENT, "unhooked_asked": 1, "unhooked_name": "libwork.so"}
    machine.answer("status", {**STATUS, "clients": [past]})
    _, found = machine.findings("session")
    assert found.level == WARNING and "may pass by: libwork.so" in found.said


def test_a_gpu_for_one_process_only_is_a_warning(machine):
    (device,) = GPUS["devices"]
    machine.answer("gpus", {**GPUS, "devices": [{**device, "compute_mode": "exclusive process"}]})
    found = machine.one("gpu")
    assert found.level == WARNING and "exclusive process" in found.said and "GPU-1" in found.todo


def test_programs_that_nobody_can_name_are_a_warning(machine):
    _, found = machine.findings("gpu", has_library=lambda name: False)
    assert found.level == WARNING and found.said.startswith("no libnvidia-ml.so.1")


def test_a_toolkits_stub_is_not_answered_with_the_driver_to_install(machine):
    machine.answer("gpus", None, "/usr/stubs/libcuda.so.1 is the stub of a CUDA toolkit; take its folder out")
    found = machine.one("driver")
    assert found.level == PROBLEM and found.said.endswith("CUDA toolkit") and found.todo == "take its folder out"


@pytest.mark.parametrize("change", [{"bypassed": 3}, {"labels": {"priority": "default"}}])
def test_ungated_work_and_a_missing_priority_are_warnings(machine, change):
    machine.answer("status", {**STATUS, "clients": [CLIENT, {**CLIENT, **change, "pid": 8}]})
    fine, found = machine.findings("session")
    assert fine.level == OK and found.level == WARNING and "pid 8 (train)" in found.said


def test_programs_outside_are_a_warning(machine):
    outside = [{"pid": 9, "command": "python x.py"}, {"pid": None, "command": ""}]
    machine.answer("status", {**STATUS, "outside": outside})
    _, found = machine.findings("session")
    assert found.level == WARNING and "pid 9 (python x.py)" in found.said


def test_a_missing_interposer_is_a_problem(machine):
    machine.library.unlink()
    found = machine.one("preload")
    assert found.level == PROBLEM and found.said.endswith("is missing")


@pytest.mark.parametrize("content", [b"", b"not a library"])
def test_an_interposer_that_cannot_be_loaded_is_a_problem(machine, content):
    """The loader prints an error for every program and runs it ungated."""
    machine.library.write_bytes(content)
    found = machine.one("preload")
    assert found.level == PROBLEM and "cannot load it" in found.said


def test_a_path_with_a_blank_is_a_problem(tmp_path):
    found = Machine(tmp_path / "with blank").one("preload")
    assert found.level == PROBLEM and "a blank or a colon" in found.said


@pytest.mark.parametrize("where", ("variable", "file"))
def test_an_interposer_of_somebody_else_is_a_warning(machine, where):
    """It sees no launch: ours calls the driver itself."""
    other = machine.folder / "libother.so"
    source = b"int cuLaunchKernel(void) { return 0; }" if where == "variable" else b"int cuLaunchKernel;"
    subprocess.run(["cc", "-shared", "-o", other, "-x", "c", "-"], input=source, check=True)
    harmless = machine.folder / "libharmless.so"
    caller = b"int cuLaunchKernel(void); int call(void) { return cuLaunchKernel(); }"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", harmless, "-x", "c", "-"], input=caller, check=True)
    listed = f"{harmless}:/nonexistent.so {machine.library} {other}"
    if where == "variable":
        machine.environment["LD_PRELOAD"] = listed
    else:
        (machine.folder / "etc").mkdir()
        (machine.folder / "etc/ld.so.preload").write_text(listed)
    found, _ = machine.findings("preload")
    assert found.level == WARNING and str(other) in found.said and "past it" in found.said


def test_the_interposer_of_another_installation_is_a_warning(machine):
    machine.environment["LD_PRELOAD"] = f"/usr/lib/libjemalloc.so:{machine.library}"
    assert machine.one("preload").level == OK
    machine.environment["LD_PRELOAD"] = "/usr/lib/libjemalloc.so /old/libsluice_intercept.so"
    other, own = machine.findings("preload")
    assert other.level == WARNING and other.said.endswith("/old/libsluice_intercept.so") and own.level == OK


@pytest.mark.parametrize("named", [False, True])
def test_mps_is_a_warning(machine, named):
    folder = machine.folder / ("elsewhere" if named else "tmp/nvidia-mps")
    folder.mkdir()
    (folder / "control").touch()
    if named:
        machine.environment["CUDA_MPS_PIPE_DIRECTORY"] = str(folder)
    assert machine.one("mps").level == WARNING


def mps_client(pid: int, under: str, device: int = 0) -> dict:
    return {**CLIENT, "pid": pid, "name": f"p{pid}", "device": device, "mps": {"under": under}}


def with_clients(machine, *clients: dict) -> None:
    machine.answer("status", {**STATUS, "clients": list(clients)})


def test_what_the_mps_daemon_of_the_session_shares_is_said(machine):
    with_clients(machine, mps_client(7, "session"), mps_client(8, "session"), mps_client(9, "none", device=1))
    found = machine.one("mps")
    assert found.level == OK
    assert found.said == "the session's MPS daemon has 2 programs: a fatal fault of one ends the kernels of all"


def test_programs_outside_of_the_mps_daemon_of_the_session_are_named(machine):
    with_clients(machine, mps_client(7, "session"), mps_client(8, "none"), mps_client(9, "other"))
    found = machine.findings("mps")
    assert [finding.level for finding in found] == [WARNING, WARNING]
    assert "pid 8 (p8) is outside" in found[0].said and "pid 9 (p9)" in found[1].said
    with_clients(machine, mps_client(8, "none"), {**mps_client(9, "none"), "mps": None})
    assert machine.one("mps").said == "no MPS daemon: the GPU is time-sliced"


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_segments_that_are_switched_off_are_a_warning(machine, name):
    machine.environment[name] = "max_split_size_mb:128, expandable_segments:True"
    assert machine.one("segments").said == f"{name} switches them on"
    machine.environment[name] = "max_split_size_mb:128,expandable_segments:False"
    found = machine.one("segments")
    assert found.level == WARNING and name in found.todo


def test_of_two_variables_the_one_that_pytorch_reads_counts(machine):
    machine.environment["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    machine.environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:False"
    assert machine.one("segments").level == WARNING


@pytest.mark.parametrize(("program", "library"), [("sluice-worker-torch", "LibTorch"), ("sluice-serve", "gRPC")])
def test_a_program_that_was_not_built_is_a_warning(machine, program, library):
    """Packages have no LibTorch; their users must learn it before they look for a fault of their own."""
    (machine.folder / "libexec/sluice" / program).unlink()
    found = machine.one("parts")
    assert found.level == WARNING and f"built without {library}: no sluice" in found.said


def test_missing_packages_are_named(machine):
    found = machine.one("parts", has_package=lambda name: name != "pandas")
    assert found.level == WARNING and " has no pandas: no sluice parse" in found.said
    assert found.todo.endswith("pip install pandas")


def test_how_to_get_packages_depends_on_the_installation(tmp_path, monkeypatch):
    """Prevents: a user of a package or a wheel who is sent to a script of the checkout."""
    monkeypatch.setenv("SLUICE_VENV", "/opt/sluice/venv")
    venv = "/opt/sluice/venv"
    assert how_to_get("numpy") == f"sudo python3 -m venv {venv} && sudo {venv}/bin/pip install numpy"
    (tmp_path / "x").touch()
    monkeypatch.setenv("SLUICE_VENV", f"{tmp_path}/.venv")
    assert how_to_get("numpy") == f"{tmp_path}/x reports"
    assert how_to_get("torch==2.11.0") == f"{tmp_path}/x torch"
    assert how_to_get("apache-tvm==1") == f"{tmp_path}/x programs"
    monkeypatch.setenv("SLUICE_VENV", "")
    assert how_to_get("numpy", "pandas") == f"{sys.executable} -m pip install numpy pandas"


def test_a_missing_library_and_its_programs_are_named(machine):
    library = machine.folder / "libneeded.so"
    command = ["cc", "-shared", "-Wl,-soname,libneeded.so", "-o", library, "-x", "c", "/dev/null"]
    subprocess.run(command, check=True)
    program = machine.folder / "libexec/sluice/sluice-needy"
    link = [
        "cc",
        "-o",
        program,
        "-x",
        "c",
        "-",
        "-x",
        "none",
        "-Wl,--no-as-needed",
        f"-Wl,-rpath,{machine.folder}",
        library,
    ]
    marker = machine.folder / "ran"
    source = f'#include <stdio.h>\nint main(void) {{ return fopen("{marker}", "w") == 0; }}\n'
    subprocess.run(link, input=source, text=True, check=True)
    assert machine.one("libraries").level == OK
    library.unlink()
    found = machine.one("libraries")
    assert found.level == PROBLEM and found.said == "no libneeded.so: sluice-needy cannot start"
    assert not marker.exists()


def test_the_text_and_the_exit_code(machine, monkeypatch, capsys):
    monkeypatch.setenv("SLUICE_PROGRAM", str(machine.folder / "bin/sluice"))
    assert main(["--gpu", "sim"]) == 0
    assert capsys.readouterr().out.startswith("ok       driver       CUDA 13.0, /usr/lib/libcuda.so.1\n")
    machine.library.unlink()
    assert main(["--gpu", "sim", "--json"]) == 1
    found = {finding["check"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert found["preload"]["level"] == PROBLEM and set(found["preload"]) == {"check", "level", "said", "todo"}


@pytest.mark.parametrize("name", ("a b", "a/b", ".a", "a.", "x" * 33))
def test_a_name_that_no_session_has_is_wrong_usage(monkeypatch, capsys, name):
    with pytest.raises(SystemExit) as end:
        main(["--session", name])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"'{name}' cannot name a session" in said


def test_what_to_do_has_a_line_of_its_own(machine):
    machine.library.unlink()
    text = text_of(machine.findings("preload"))
    assert text.splitlines()[1] == "         do: build or install Sluice again"


@pytest.mark.skipif(not PROGRAM, reason="needs a build of Sluice")
def test_this_build_with_the_simulated_gpu():
    session = f"test-{os.getpid()}-doctor"
    done = subprocess.run(
        [PROGRAM, "doctor", "--gpu", "sim", "--session", session, "--json"], capture_output=True, text=True
    )
    found = {finding["check"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 0 and found["driver"]["level"] == found["preload"]["level"] == OK, done.stdout
    refused = subprocess.run([PROGRAM, "doctor", "--session", "a b", "--json"], capture_output=True, text=True)
    assert refused.returncode == 2 and "'a b'" in refused.stderr and not refused.stdout


class FakeTrial:
    """In place of programs: what jobs take with each slice, in turn."""

    def __init__(self, why="", state="short", short=(0.3, 0.9, 0.3), driver=(1.4, 0.4, 1.2)):
        self.why, self.shown, self.ended = why, state, False
        self.times = {"off": list(driver), "100us": list(short)}

    def __call__(self, about):
        return self

    def begins(self):
        return self.why

    def job_ms(self, slice_):
        return self.times[slice_].pop(0)

    def state(self):
        return self.shown

    def end(self):
        self.ended = True


@pytest.mark.parametrize(
    ("trial", "level", "said"),
    [
        (FakeTrial(), OK, "obeyed: a short job next to kernels of 20 ms takes 0.30 ms with slices of 100us, 1.20 ms"),
        (FakeTrial(short=(1.0, 0.8, 0.9)), WARNING, "not obeyed: "),
        (FakeTrial(state="refused"), WARNING, "no: the slice of a program cannot be set here (refused)"),
        (FakeTrial(state="no-group"), WARNING, "no: the slice of a program cannot be set here (no-group)"),
        (FakeTrial(why="no GPU"), WARNING, "not tried: no GPU"),
    ],
)
def test_slices_are_tried(machine, monkeypatch, trial, level, said):
    monkeypatch.setattr("sluice_tools.doctor.slices._Trial", trial)
    (finding,) = slices(Surroundings(machine.folder / "bin/sluice", machine.environment))
    assert finding.level == level and finding.said.startswith(said), finding
    assert trial.ended and bool(finding.todo) == (level != OK)


def trial_with(machine, monkeypatch, trial) -> Surroundings:
    """On a machine with a driver and a home."""
    monkeypatch.setattr("sluice_tools.doctor.slices._Trial", trial)
    machine.answer("gpus", {**GPUS, "devices": [{**GPUS["devices"][0], "uuid": UUID}]})
    version = machine.folder / "sys/module/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("580.159.04\n")
    machine.environment["HOME"] = str(machine.folder / "home")
    return Surroundings(machine.folder / "bin/sluice", machine.environment, files=machine.folder)


@pytest.mark.parametrize(
    ("trial", "recorded"),
    [
        (FakeTrial(), "obeyed (0.30 ms)"),
        (FakeTrial(short=(1.0, 0.8, 0.9)), "not obeyed"),
        (FakeTrial(state="no-group"), "no answer yet"),
        (FakeTrial(why="no GPU"), "no answer yet"),
    ],
)
def test_the_answer_of_a_trial_is_recorded(machine, monkeypatch, trial, recorded):
    """A controller that never got an answer, or a wrong one, goes by this one from then on."""
    about = trial_with(machine, monkeypatch, trial)
    list(slices(about))
    found = slice_answers.recorded(UUID, "580.159.04", machine.environment)
    assert found.text == recorded
    assert slice_answers.recorded(UUID, "580.159.05", machine.environment).slices is None, "of another driver"
    assert not list(machine.folder.glob("home/.cache/sluice/.slices*")), "a temporary file is left"


def test_nothing_is_recorded_of_the_simulated_gpu(machine, monkeypatch):
    """A trial on a busy machine would change the slices of all later tests."""
    about = trial_with(machine, monkeypatch, FakeTrial(short=(1.0, 0.8, 0.9)))
    list(slices(dataclasses.replace(about, gpu="sim")))
    assert not list(machine.folder.glob("home/**/*.json"))


def test_what_the_controller_asks_is_printed_and_not_recorded(machine, monkeypatch):
    """It knows whether somebody disturbed the trial, and records the text as it is printed."""
    about = trial_with(machine, monkeypatch, FakeTrial())
    printed = answer_for(about, UUID)
    assert slice_answers.recorded(UUID, "580.159.04", machine.environment).slices is None
    file = slice_answers.answer_file(UUID, machine.environment)
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(printed))
    assert slice_answers.recorded(UUID, "580.159.04", machine.environment).text == "obeyed (0.30 ms)"
    none = answer_for(about, "GPU-2")
    assert none["slices"] is None and "find no GPU GPU-2" in none["why"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"driver": "580"}', '{"driver": "580", "slices": "perhaps"}'])
def test_a_damaged_record_is_no_answer(tmp_path, content):
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    file = slice_answers.answer_file(UUID, environment)
    file.parent.mkdir()
    file.write_text(content)
    assert slice_answers.recorded(UUID, "580", environment).text == "no answer yet"


def test_a_home_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").touch()
    for environment in ({}, {"HOME": "relative"}, {"XDG_CACHE_HOME": str(tmp_path / "file")}):
        assert not slice_answers.record(UUID, "580", Answer("obeyed", 0.3, 1.2), environment)
    assert slice_answers.answer_file("../../etc/x", {"HOME": "/"}) is None


def test_a_trial_has_no_settings_for_clients_and_begins_no_other():
    own = {"SLUICE_SLICE": "off", "SLUICE_MEMORY": "1GiB", "LD_PRELOAD": "x.so", "SLUICE_CHECK_SLICES": "always"}
    kept = {"HOME": "/h", "SLUICE_SIM_SCALE": "10", "SLUICE_PYTHON": "python3"}
    assert _trial_environment(own | kept) == kept | {"LD_PRELOAD": "x.so", "SLUICE_CHECK_SLICES": "never"}


@pytest.mark.skipif(not PROGRAM, reason="needs a build of Sluice")
def test_a_controller_tries_the_simulated_gpu_and_shows_the_answer(tmp_path):
    """The trial, its record and the controller's reading fit together."""
    session = f"test-{os.getpid()}-slices"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    place = ["--session", session]

    def devices() -> list[dict]:
        done = subprocess.run([PROGRAM, "status", "--json", *place], capture_output=True, text=True)
        return json.loads(done.stdout)["devices"] if done.returncode == 0 else []

    controller = subprocess.Popen([PROGRAM, "controller", *place, "--check-slices", "always"], env=environment)
    try:
        ready = time.monotonic() + 30  # else exec starts a controller of its own, which tries nothing
        while subprocess.run([PROGRAM, "status", *place], capture_output=True).returncode and time.monotonic() < ready:
            time.sleep(0.1)
        client = [str(Path(PROGRAM).parents[1] / "libexec/sluice/sluice-example-spin"), "--jobs", "1"]
        subprocess.run(
            [PROGRAM, "exec", *place, "--priority", "0", "--gpu", "sim", "--", *client], check=True, env=environment
        )
        deadline = time.monotonic() + 120
        found_devices = devices()
        while time.monotonic() < deadline and not any(device["slices"] for device in found_devices):
            time.sleep(0.2)
            found_devices = devices() or found_devices
        (device,) = found_devices
        assert device["slices"]["obeyed"] is True and device["slices"]["job_us"] > 0
        found = slice_answers.recorded(device["uuid"], slice_answers.SIMULATED, environment)
        assert found.slices == "obeyed" and found.short_ms < 0.6 * found.driver_ms
    finally:
        controller.terminate()
        controller.wait(20)
