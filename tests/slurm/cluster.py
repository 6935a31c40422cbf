"""A Slurm cluster of one node on loopback, with two GPUs of which each has four shards."""

import http.client
import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

BUILD = Path(os.environ.get("SLUICE_TEST_BUILD", "build")).resolve()
STATE = Path("/run/sluice/slurm")
NOBODY = 65534
SLUICE = str(BUILD / "bin" / "sluice")
SPIN = str(BUILD / "libexec" / "sluice" / "sluice-example-spin")
ON_SIMULATED_GPU = {"LD_LIBRARY_PATH": str(BUILD / "lib" / "sluice" / "simgpu")}
PLUGIN = str(BUILD / "lib" / "sluice" / "slurm" / "spank_sluice.so")
SHARD = "--gres=shard:1"

_SLURM_CONF = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=26817
SlurmdPort=26818
SlurmUser=root
AuthInfo=socket={0}/munge.sock
StateSaveLocation={0}/state
SlurmdSpoolDir={0}/spool
SlurmctldPidFile={0}/slurmctld.pid
SlurmdPidFile={0}/slurmd.pid
SlurmctldLogFile={0}/slurmctld.log
SlurmdLogFile={0}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu,shard
PlugStackConfig={0}/plugstack.conf
Prolog={0}/prolog
Epilog={1}/libexec/sluice/slurm-epilog
MailProg=/bin/true
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=localhost NodeAddr=127.0.0.1 CPUs=8 CoresPerSocket=8 Gres=gpu:2,shard:8
PartitionName=serving Nodes=localhost Default=YES
PartitionName=batch Nodes=localhost
"""
_GRES_CONF = """\
Name=gpu File={0}/gpu0
Name=gpu File={0}/gpu1
Name=shard Count=4 File={0}/gpu0
Name=shard Count=4 File={0}/gpu1
"""


def wait_until(condition, what: str, seconds: float = 30):
    """The first true value of `condition()`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)
    return value


class Cluster:
    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.folder.chmod(0o755)
        for minor, gpu in ((3, "gpu0"), (5, "gpu1")):  # slurmd wants devices
            os.mknod(self.folder / gpu, 0o020666, os.makedev(1, minor))
        self._write("slurm.conf", _SLURM_CONF.format(self.folder, BUILD))
        self._write("gres.conf", _GRES_CONF.format(self.folder))
        self._write("cgroup.conf", "CgroupPlugin=cgroup/v1\n")
        self.configure_plugin("")
        self.configure_prolog("")
        self._write("key", "no secret, for this test only: 32 bytes and more", 0o600)
        self.environment = os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")}
        place = self.folder
        self._run("munged", "--force", f"--key-file={place}/key", f"--socket={place}/munge.sock",
                  f"--pid-file={place}/munged.pid", f"--log-file={place}/munged.log",
                  f"--seed-file={place}/seed", "--num-threads=1")  # fmt: skip
        self._start("slurmctld", "-D", "-i")
        self.slurmd = self._start("slurmd", "-D", "-N", "localhost")
        wait_until(self.is_idle, "the node is ready")

    def _write(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def _run(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done
        return done.stdout

    def configure_plugin(self, arguments: str, mode: str = "optional", plugin: Path | str = PLUGIN) -> None:
        self._write("plugstack.conf", f"{mode} {plugin} {arguments}\n")

    def configure_prolog(self, arguments: str, before: str = "") -> None:
        # As slurmd does: without an exported PATH.
        prolog = f"{BUILD}/libexec/sluice/slurm-prolog"
        self._write("prolog", f"#!/bin/sh\n{before}\nexec {prolog} {arguments}\n", 0o755)

    def _start(self, *daemon: str) -> subprocess.Popen:
        return subprocess.Popen(daemon, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def restart_slurmd(self) -> None:
        self.slurmd.terminate()
        self.slurmd.wait()
        self.slurmd = self._start("slurmd", "-D", "-N", "localhost")

    def is_idle(self) -> bool:
        return (
            "idle"
            in subprocess.run(["sinfo", "-h", "-o", "%t"], env=self.environment, capture_output=True, text=True).stdout
        )

    def start(self, *command: str, uid: int = 0, **variables: str) -> subprocess.Popen:
        """srun or sbatch, in the environment of a user."""
        return subprocess.Popen(
            ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *command],
            env=self.environment | variables,
            cwd="/tmp",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, uid: int = 0, **variables: str) -> subprocess.CompletedProcess:
        started = self.start(*command, uid=uid, **variables)
        out, err = started.communicate(timeout=60)
        return subprocess.CompletedProcess(command, started.returncode, out, err)


def clients() -> dict:
    """The clients of the session that programs of root find, by name."""
    said = subprocess.run([SLUICE, "status", "--json"], capture_output=True, text=True).stdout
    return {client["name"]: client for client in json.loads(said or "{}").get("clients", [])}


def metrics(path) -> str:
    connection = http.client.HTTPConnection("sluice")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    connection.request("GET", "/metrics")
    return connection.getresponse().read().decode()


def state_files() -> set[str]:
    return {path.name for path in STATE.glob("*")} - {"lock"}
