"""`sluice cdi`: a device that a container engine refuses, or that leaves the program without its gate, would be
noticed only by the latency of the critical program.

One test starts containers. It is skipped without root, podman and crun: apt-get install podman crun."""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sluice_tools.cdi.cli import main, specification

PRELOAD = Path(__file__).parents[2] / "tools" / "python" / "sluice_tools" / "cdi" / "ld.so.preload"
PROGRAM = os.environ.get("SLUICE_TEST_PROGRAM", "")


@pytest.fixture
def root(tmp_path) -> Path:
    for name in ("lib/sluice/libsluice_intercept.so", "bin/sluice"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    (tmp_path / "share/sluice").mkdir(parents=True)
    shutil.copy(PRELOAD, tmp_path / "share/sluice")
    return tmp_path


def test_every_priority_is_a_device(root):
    devices = json.loads(specification(root, None))["devices"]
    priorities = {device["name"]: device["containerEdits"]["env"] for device in devices}
    assert len(priorities) == len(devices) == 258
    assert priorities["besteffort"] == ["SLUICE_PRIORITY=0"] and priorities["critical"] == ["SLUICE_PRIORITY=1"]
    assert all(priorities[str(n)] == [f"SLUICE_PRIORITY={n}"] for n in range(256))


def test_the_names_are_those_that_cdi_allows(root):
    """An engine ignores a file with a wrong name, and says that the device is unknown."""
    content = json.loads(specification(root, None))
    assert re.fullmatch(r"[a-z][a-z0-9.]*/[a-z][a-z0-9]*", content["kind"]) and content["cdiVersion"] == "0.5.0"
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:-]*", device["name"]) for device in content["devices"])


def test_the_preloaded_file_is_where_the_container_has_it(root):
    """The loader would print an error for every program, and the program would run ungated."""
    mounts = {m["containerPath"]: m for m in json.loads(specification(root, None))["containerEdits"]["mounts"]}
    preload = mounts["/etc/ld.so.preload"]
    named = Path(Path(preload["hostPath"]).read_text().strip())
    folder = mounts[str(named.parent)]
    assert (Path(folder["hostPath"]) / named.name).exists()
    assert all("ro" in mount["options"] for mount in (preload, folder)) and "rw" in mounts["/dev/shm"]["options"]


@pytest.mark.parametrize("missing", ["lib/sluice/libsluice_intercept.so", "share/sluice/ld.so.preload"])
def test_an_incomplete_installation_is_named(root, missing, monkeypatch, capsys):
    (root / missing).unlink()
    monkeypatch.setenv("SLUICE_PROGRAM", str(root / "bin" / "sluice"))
    assert main([]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.endswith(f"sluice cdi: {root / missing} is missing; build or install Sluice again\n")


@pytest.fixture
def node(root, tmp_path, monkeypatch) -> Path:
    """The folder of a node service that runs."""
    folder = tmp_path / "node"
    folder.mkdir(mode=0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, monkeypatch.context() as inside:
        inside.chdir(folder)  # names of sockets are short
        listener.bind("node.sock")
    monkeypatch.setenv("SLUICE_PROGRAM", str(root / "bin" / "sluice"))
    monkeypatch.setenv("SLUICE_NODE_DIR", str(folder))
    return folder


def board(capsys, *arguments: str) -> tuple[dict, list[str], str]:
    """The mounts by their place in the container, the variables of all devices, and what was said."""
    assert main(list(arguments)) == 0
    out, err = capsys.readouterr()
    edits = json.loads(out)["containerEdits"]
    return {mount["containerPath"]: mount for mount in edits["mounts"]}, edits.get("env", []), err


def test_containers_use_the_node_service_if_it_runs(node, capsys):
    """Programs of several users would run ungated; and the whole /dev/shm of the host would be open to them."""
    mounts, variables, said = board(capsys)
    assert mounts["/run/sluice"]["hostPath"] == str(node) and "ro" in mounts["/run/sluice"]["options"]
    assert "/dev/shm" not in mounts and variables == ["SLUICE_SESSION=node"]
    assert said == f"sluice cdi: containers use the node service in {node}: programs of all users share its board\n"


def without_socket(folder: Path, variables: pytest.MonkeyPatch) -> None:
    (folder / "node.sock").unlink()  # as where only Slurm's files are in the folder


def without_folder(folder: Path, variables: pytest.MonkeyPatch) -> None:
    variables.setenv("SLUICE_NODE_DIR", "")


def open_to_others(folder: Path, variables: pytest.MonkeyPatch) -> None:
    folder.chmod(0o777)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (without_socket, "no node service in "),
        (without_folder, "SLUICE_NODE_DIR names no folder"),
        (open_to_others, "programs do not trust the node service in "),
    ],
)
def test_without_a_node_service_containers_use_shared_memory(node, capsys, monkeypatch, spoil, why):
    """A container with a service that its programs cannot use would run ungated."""
    spoil(node, monkeypatch)
    mounts, variables, said = board(capsys)
    assert "/run/sluice" not in mounts and "rw" in mounts["/dev/shm"]["options"] and variables == []
    assert said.startswith("sluice cdi: containers use /dev/shm: ") and why in said


def test_a_file_can_be_written_before_the_service_starts(node, capsys, monkeypatch):
    (node / "node.sock").unlink()
    assert board(capsys, "--node")[0]["/run/sluice"]["hostPath"] == str(node)
    monkeypatch.setenv("SLUICE_NODE_DIR", "relative")
    assert main(["--node"]) == 2
    assert "SLUICE_NODE_DIR names no folder" in capsys.readouterr().err


def test_wrong_usage_is_one_line(capsys):
    with pytest.raises(SystemExit) as usage:
        main(["--all"])
    assert usage.value.code == 2 and len(capsys.readouterr().err.splitlines()) == 1


# In a mount namespace of its own, so that the machine's /etc/cdi and cgroups stay as they are: crun refuses some
# mixtures of cgroup versions.
CONTAINER = """
mount -t tmpfs none /sys/fs/cgroup && mkdir -p /etc/cdi && mount --bind "$1/cdi" /etc/cdi || exit 99
scratch=$1; shift
exec podman --runtime crun --storage-driver vfs --root "$scratch/store" --runroot "$scratch/run" run --rm \\
  --cgroups=disabled --network=none --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 -v /usr:/usr:ro "$@"
"""
WHY_NO_CONTAINERS = (
    "needs a build of Sluice"
    if not PROGRAM
    else "needs root"
    if os.geteuid() != 0
    else "needs podman and crun: apt-get install podman crun"
    if not (shutil.which("podman") and shutil.which("crun"))
    else ""
)


@contextmanager
def short_folder() -> Iterator[Path]:
    """podman refuses long names, and still writes for a moment after a container has ended."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        yield folder
    finally:
        deadline = time.monotonic() + 30
        while folder.exists():
            shutil.rmtree(folder, ignore_errors=time.monotonic() < deadline)
            time.sleep(0.1)


class Stage:
    """A folder for the root of containers and for podman's files."""

    def __init__(self, scratch: Path, session: str, variables: dict[str, str]):
        self.scratch, self.session = scratch, session
        self.variables = os.environ | variables
        self.libexec = Path(PROGRAM).parents[1] / "libexec" / "sluice"
        for name in ("usr", "etc", "proc", "sys", "dev", "tmp", "run", "root"):
            (scratch / "image" / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64"):
            (scratch / "image" / name).symlink_to(f"usr/{name}")
        (scratch / "cdi").mkdir()
        listed = subprocess.run([PROGRAM, "cdi"], env=self.variables, capture_output=True, text=True, check=True)
        (scratch / "cdi" / "sluice.json").write_text(listed.stdout)
        (scratch / "namespace").write_text("vision")

    def start(self, device: str, *program: str, options: tuple[str, ...] = ()) -> subprocess.Popen:
        given = ["--device", f"sluice.dev/priority={device}", "-e", f"SLUICE_NAME={device}", *options]
        given += ["-e", "LD_LIBRARY_PATH=/opt/sluice/lib/sluice/simgpu"]
        # As Kubernetes does.
        given += ["-e", "KUBERNETES_SERVICE_HOST=10.0.0.1", "--hostname", f"{device}-0"]
        given += ["-v", f"{self.scratch}/namespace:/var/run/secrets/kubernetes.io/serviceaccount/namespace:ro"]
        given += ["-v", f"{self.libexec}:/programs:ro", "--rootfs", str(self.scratch / "image")]
        return subprocess.Popen(
            ["unshare", "-m", "sh", "-c", CONTAINER, "sh", str(self.scratch), *given, *program],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def clients(self) -> dict:
        command = [PROGRAM, "status", "--json", "--session", self.session]
        said = subprocess.run(command, env=self.variables, capture_output=True, text=True).stdout
        return {client["name"]: client for client in json.loads(said or "{}").get("clients", [])}

    def wait_until_held(self, started: list[subprocess.Popen]) -> dict:
        """The clients, when the critical container has held the other one."""
        deadline = time.monotonic() + 60
        seen: dict = {}
        while not (seen.get("besteffort", {}).get("held_total_ns") and "critical" in seen):
            ended = [process.communicate()[0] for process in started if process.poll() is not None]
            assert time.monotonic() < deadline and not ended, (seen, ended)
            time.sleep(0.2)
            seen = self.clients()
        assert "critical" in {wait["name"] for wait in seen["besteffort"]["held_total_by"]}
        assert (seen["critical"]["priority"], seen["besteffort"]["priority"]) == (1, 0)
        assert seen["besteffort"]["bypassed"] == 0
        return seen


@pytest.mark.skipif(bool(WHY_NO_CONTAINERS), reason=WHY_NO_CONTAINERS)
def test_two_containers_share_a_simulated_gpu_by_priority():
    with short_folder() as scratch:
        share_by_priority(scratch, f"test-{os.getpid()}-cdi")


def share_by_priority(scratch: Path, session: str) -> None:
    stage = Stage(scratch, session, {"SLUICE_NODE_DIR": ""})
    chosen = ("-e", f"SLUICE_SESSION={session}")
    host = subprocess.Popen(  # keeps the controller and the simulated GPU
        f"{PROGRAM} exec --gpu sim --session {session} --priority 0 --name host -- "
        "sluice-example-spin --kernels 4 --period-ms 50 --seconds 30".split(),
        stdout=subprocess.DEVNULL,
    )
    try:
        spin = ["/programs/sluice-example-spin", "--seconds", "3"]
        started = [
            stage.start("critical", *spin, "--kernels", "20", "--period-ms", "6", options=chosen),
            stage.start("besteffort", *spin, "--kernels", "400", options=chosen),
            stage.start("256", *spin, options=chosen),
        ]
        seen = stage.wait_until_held(started[:2])
        assert seen["critical"]["labels"] == {"namespace": "vision", "pod": "critical-0"}
        said = [process.communicate(timeout=90)[0] for process in started]
        assert [process.returncode == 0 for process in started] == [True, True, False], said
        assert "jobs/s" in said[0] and "sluice.dev/priority=256" in said[2]
    finally:
        host.kill()
        host.wait()


@pytest.mark.skipif(bool(WHY_NO_CONTAINERS), reason=WHY_NO_CONTAINERS)
def test_containers_of_two_users_share_a_simulated_gpu_by_the_node_service():
    with short_folder() as scratch:
        share_by_node_service(scratch)


def share_by_node_service(scratch: Path) -> None:
    gpu = scratch / "gpu"
    gpu.mkdir()
    gpu.chmod(0o1777)
    (scratch / "policy.json").write_text('{"rules": [{"user": 1001, "max_priority": 1}]}')
    variables = {"SLUICE_NODE_DIR": str(scratch / "node"), "SLUICE_SIMGPU_DIR": str(gpu)}
    with (scratch / "log").open("w") as log:
        service = subprocess.Popen(
            [PROGRAM, "node", "--policy", str(scratch / "policy.json")], env=os.environ | variables, stderr=log
        )
    host = subprocess.Popen(  # keeps the simulated GPU
        f"{PROGRAM} exec --gpu sim --no-intercept -- sluice-example-spin --period-ms 100 --seconds 120".split(),
        env=os.environ | variables,
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while "sluice node ready" not in (scratch / "log").read_text():
            assert time.monotonic() < deadline and service.poll() is None, (scratch / "log").read_text()
            time.sleep(0.1)
        stage = Stage(scratch, "node", variables)
        spin = ["/programs/sluice-example-spin", "--seconds", "3"]
        shared = ("-v", f"{gpu}:/gpu", "-e", "SLUICE_SIMGPU_DIR=/gpu", "--user")
        started = [
            stage.start("critical", *spin, "--kernels", "20", "--period-ms", "6", options=(*shared, "1001")),
            stage.start("besteffort", *spin, "--kernels", "400", options=(*shared, "1002")),
        ]
        seen = stage.wait_until_held(started)
        assert (seen["critical"]["uid"], seen["besteffort"]["uid"]) == (1001, 1002)
        said = [process.communicate(timeout=90)[0] for process in started]
        assert [process.returncode for process in started] == [0, 0], said
    finally:
        for process in (host, service):
            process.kill()
            process.wait()
