"""Jobs on a node with the node service: the priorities of several users hold on the shards of one GPU. Without these
tests, two users' jobs could be on two boards, which nobody notices but by the latency of the critical one."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from cluster import (
    BUILD,
    NOBODY,
    ON_SIMULATED_GPU,
    SHARD,
    SLUICE,
    SPIN,
    STATE,
    clients,
    metrics,
    state_files,
    wait_until,
)

DAEMON = 1
POLICY = {"default": {"max_priority": 0}, "rules": [{"user": "nobody", "max_priority": 5}]}
SHOW = ["sh", "-c", "echo $SLUICE_SESSION-$SLUICE_NODE_DIR"]


class Service:
    """`sluice node` in /run/sluice, which the tests have for themselves, or in another folder."""

    def __init__(self, files: Path, folder: Path = STATE.parent):
        self.page = files / "metrics"
        self._folder = folder
        self._log = files / "node.log"
        policy = files / "node.json"
        policy.write_text(json.dumps(POLICY))
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [SLUICE, "node", "--policy", str(policy), "--metrics", f"unix:{self.page}"],
                env=os.environ | {"SLUICE_NODE_DIR": str(folder)},
                stderr=log,
            )
        wait_until(lambda: "sluice node ready" in self._log.read_text(), "the node service is ready")

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()
        (self._folder / "node.sock").unlink(missing_ok=True)  # stays if a program lived


@pytest.fixture
def service(cluster, tmp_path):
    service = Service(tmp_path)
    yield service
    service.end()


@pytest.fixture
def shared_gpu(cluster):
    """The variables of a program on the GPU that all users share, which outlives each job."""
    folder = cluster.folder / "simgpu"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)
    variables = ON_SIMULATED_GPU | {"SLUICE_SIMGPU_DIR": str(folder)}
    keeper = subprocess.Popen([SLUICE, "exec", "--gpu", "sim", "--no-intercept", "--", SPIN, "--seconds", "120",
                               "--period-ms", "100"], env=cluster.environment | variables,
                              stdout=subprocess.DEVNULL)  # fmt: skip
    yield variables
    keeper.kill()
    keeper.wait()


def no_controller() -> bool:
    return not subprocess.run(["pgrep", "-x", "sluice-controll"], capture_output=True).stdout


def test_a_job_is_gated_by_the_job_of_another_user(cluster, service, shared_gpu):
    critical = cluster.start("srun", SHARD, "--sluice-priority=1", SPIN, "--seconds", "40", "--kernels", "20",
                             "--period-ms", "6", uid=NOBODY, SLUICE_NAME="critical", **shared_gpu)  # fmt: skip
    wait_until(lambda: "critical" in clients(), "the critical job attaches")
    train = cluster.start("srun", SHARD, "--sluice-priority=0", SPIN, "--seconds", "40", "--kernels", "400",
                          uid=DAEMON, SLUICE_NAME="train", **shared_gpu)  # fmt: skip
    wait_until(lambda: clients().get("train", {}).get("held_total_ns"), "the critical job holds the other")
    seen = clients()
    owners = [(seen[name]["uid"], seen[name]["priority"]) for name in ("critical", "train")]
    assert owners == [(NOBODY, 1), (DAEMON, 0)]
    assert seen["critical"]["device"] == seen["train"]["device"]
    assert "critical" in {wait["name"] for wait in seen["train"]["held_total_by"]}
    assert seen["critical"]["bypassed"] == seen["train"]["bypassed"] == 0
    series = [line for line in metrics(service.page).splitlines() if line.startswith("sluice_client_info")]
    assert all("label_job=" in line for line in series) and len(series) == 2
    assert no_controller() and not any(name.startswith("controller") for name in state_files())
    critical.terminate()
    critical.wait()
    ended = f"job.{seen['critical']['labels']['job']}"
    wait_until(lambda: ended not in state_files(), "the epilog of the critical job has run")
    wait_until(lambda: set(clients()) == {"train"}, "the node service and the other job go on")
    train.terminate()
    train.wait()


def test_the_ceilings_of_slurm_and_of_the_service_both_hold(cluster, service, shared_gpu):
    ceilings = cluster.folder / "ceilings"
    ceilings.write_text("default 3\n")
    cluster.configure_plugin(f"ceilings={ceilings}")
    above_slurm = cluster.run("srun", SHARD, "--sluice-priority=4", "echo", "ran", uid=NOBODY)
    assert above_slurm.returncode != 0 and above_slurm.stdout == ""
    assert "priority 4 is above the ceiling of this job, 3 (rule 'default' of the site)" in above_slurm.stderr
    above_service = cluster.run("srun", SHARD, "--sluice-priority=3", SPIN, "--seconds", "1", uid=DAEMON,
                                **shared_gpu)  # fmt: skip
    assert above_service.returncode == 0
    assert "priority 3 is refused: user daemon may ask for at most 0; runs at priority 0" in above_service.stderr


def test_a_job_may_ask_the_service_for_no_more_than_its_option(cluster, service):
    """Whatever is in the environment of the job. The service finds a job by its cgroup, and this cluster has none."""
    ceilings = cluster.folder / "ceilings"
    ceilings.write_text("default 3\n")
    cluster.configure_plugin(f"ceilings={ceilings}")
    limits = STATE.parent / "ceilings"
    show = ["sh", "-c", f"cat {limits}/job_$SLURM_JOB_ID"]
    assert cluster.run("srun", SHARD, *show, uid=NOBODY, SLUICE_PRIORITY="200").stdout == "  0\n"
    # The variable by which Slurm passes the option on.
    forged = {"SLUICE_PRIORITY": "200", "_SLURM_SPANK_OPTION_sluice_sluice_priority": "200"}
    assert "200" not in cluster.run("srun", SHARD, *show, uid=NOBODY, **forged).stdout
    assert cluster.run("srun", SHARD, "--sluice-priority=2", *show, uid=NOBODY).stdout == "  2\n"
    wait_until(lambda: not list(limits.iterdir()), "the epilogs remove the limits")
    cluster.configure_plugin("")
    assert "No such file" in cluster.run("srun", SHARD, "--sluice-priority=2", *show, uid=NOBODY).stderr


def test_a_users_variables_do_not_lead_away_from_the_service(cluster, service):
    for variables in ({}, {"SLUICE_SESSION": "mine", "SLUICE_NODE_DIR": ""}):
        done = cluster.run("srun", SHARD, "--sluice-priority=0", *SHOW, uid=NOBODY, **variables)
        assert done.stdout == "node-/run/sluice\n" and "sluice" not in done.stderr
    # A session of the plugin is for nodes without the service.
    cluster.configure_plugin("session=gpu")
    assert cluster.run("srun", SHARD, "--sluice-priority=0", *SHOW).stdout == "node-/run/sluice\n"


def test_the_service_may_have_another_folder(cluster, tmp_path):
    folder = Path("/run/elsewhere")
    service = Service(tmp_path, folder)
    cluster.configure_prolog("", before=f"export SLUICE_NODE_DIR={folder}")
    try:
        assert cluster.run("srun", SHARD, "--sluice-priority=0", *SHOW).stdout == f"node-{folder}\n"
    finally:
        service.end()


def test_a_site_can_keep_jobs_away_from_the_service(cluster, service):
    cluster.configure_prolog("", before="export SLUICE_NODE_DIR=")
    assert cluster.run("srun", SHARD, "--sluice-priority=0", *SHOW).stdout == "default-\n"


def test_a_socket_that_programs_would_not_believe_is_not_used(cluster):
    """The jobs would run without any gate."""
    folder = cluster.folder / "of-nobody"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "node.sock"))
        os.chown(folder, NOBODY, NOBODY)
        cluster.configure_prolog("", before=f"export SLUICE_NODE_DIR={folder}")
        assert cluster.run("srun", SHARD, "--sluice-priority=0", *SHOW).stdout == "default-\n"


def test_a_job_with_and_a_job_without_the_service_are_not_on_one_gpu(cluster, tmp_path):
    """They would have two boards, even those of one user."""
    before = cluster.start("srun", SHARD, "--sluice-priority=0", "sleep", "60")
    wait_until(lambda: "controller.0" in state_files(), "the first job runs")
    service = Service(tmp_path)
    try:
        after = cluster.run("srun", SHARD, "--sluice-priority=1", "echo", "ran")
        assert after.returncode != 0 and after.stdout == ""
        assert "(uid 0), and only one of the two jobs uses the node service" in after.stderr
    finally:
        before.terminate()
        before.wait()
        service.end()


def test_a_job_that_does_not_see_the_folder_runs_without_sluice(cluster, service):
    """As with a container, or a job_container plugin that hides /run."""
    hidden = f"{BUILD}/libexec/sluice/slurm-prolog && exec sed -i '1s,/run/sluice,/nowhere,' {STATE}/job.$SLURM_JOB_ID"
    (cluster.folder / "prolog").write_text(f"#!/bin/sh\n{hidden}\n")
    done = cluster.run("srun", SHARD, "--sluice-priority=1", "sh", "-c", "echo ran$LD_PRELOAD")
    assert done.stdout == "ran\n"
    assert "sluice: this job does not see /nowhere/node.sock, the socket of the node service: No such" in done.stderr
