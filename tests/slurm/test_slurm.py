"""The plugin for Slurm, in a real cluster of one node. Without these tests, a job whose priority is never set, or a
user who takes one that the site does not allow, would be noticed only by the latency of others."""

import os
import shlex
import shutil
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

INTERPOSER = str(BUILD / "lib" / "sluice" / "libsluice_intercept.so")
CEILINGS = "default 0\npartition serving 3\naccount vision 1\n"


def test_a_job_is_gated_by_another_on_the_shards_of_one_gpu(cluster):
    page = cluster.folder / "metrics"
    cluster.configure_prolog(f"--metrics unix:{page}")
    # Outside of the jobs, so that the simulated GPU outlives each of them.
    gpu = subprocess.Popen([SLUICE, "exec", "--gpu", "sim", "--no-intercept", "--", SPIN, "--seconds", "60",
                            "--period-ms", "100"], stdout=subprocess.DEVNULL)  # fmt: skip
    try:
        critical = cluster.start("srun", SHARD, "--sluice-priority=1", SPIN, "--seconds", "20", "--kernels", "20",
                                 "--period-ms", "6", SLUICE_NAME="critical", **ON_SIMULATED_GPU)  # fmt: skip
        wait_until(lambda: "critical" in clients(), "the critical job attaches")
        train = cluster.start("srun", SHARD, "--sluice-priority=0", SPIN, "--seconds", "20", "--kernels", "400",
                              SLUICE_NAME="train", SLUICE_LABEL="team=vision", **ON_SIMULATED_GPU)  # fmt: skip
        wait_until(lambda: clients().get("train", {}).get("held_total_ns"), "the critical job holds the other")
        seen = clients()
        assert (seen["critical"]["priority"], seen["train"]["priority"]) == (1, 0)
        assert "critical" in {wait["name"] for wait in seen["train"]["held_total_by"]}
        assert seen["critical"]["bypassed"] == seen["train"]["bypassed"] == 0
        assert seen["critical"]["labels"]["user"] == "root" and seen["critical"]["labels"]["job"].isdigit()
        assert seen["train"]["labels"]["team"] == "vision"
        series = [line for line in metrics(page).splitlines() if line.startswith("sluice_client_info")]
        assert all('label_user="root"' in line and "label_job=" in line for line in series) and len(series) == 2
        critical.terminate()
        critical.wait()
        ended = f"job.{seen['critical']['labels']['job']}"
        wait_until(lambda: ended not in state_files(), "the epilog of the critical job has run")
        assert {"controller.0", f"job.{seen['train']['labels']['job']}"} <= state_files()
        assert subprocess.run(["pgrep", "-x", "sluice-controll"], capture_output=True).stdout
        train.terminate()
        train.wait()
    finally:
        gpu.kill()
        gpu.wait()
    wait_until(lambda: not state_files(), "the epilog of the last job has run")
    controllers = ["pgrep", "-x", "sluice-controll"]
    wait_until(lambda: not subprocess.run(controllers, capture_output=True).stdout, "its controller has ended")


def test_a_nested_srun_preloads_once_and_keeps_what_the_user_preloads(cluster):
    own = "/lib/x86_64-linux-gnu/libm.so.6"
    script = cluster.folder / "nested.sh"
    script.write_text("#!/bin/sh\nprintenv LD_PRELOAD SLUICE_PRIORITY\nsrun printenv LD_PRELOAD SLUICE_PRIORITY\n")
    out = cluster.folder / "nested.out"
    cluster.run("sbatch", "-W", SHARD, "--sluice-priority=2", "-o", str(out), str(script), LD_PRELOAD=own)
    assert out.read_text().splitlines() == [f"{INTERPOSER}:{own}", "2"] * 2


@pytest.mark.parametrize("priority", ["256", "-1", "high", "1.5", ""])
def test_a_wrong_priority_is_refused_as_it_is_typed(cluster, priority):
    for command in (["srun"], ["sbatch", "--wrap=true"]):
        done = cluster.run(*command, f"--sluice-priority={priority}", *(["true"] if command == ["srun"] else []))
        assert done.returncode != 0
        assert f"--sluice-priority: '{priority}' is not a whole number from 0 to 255" in done.stderr


@pytest.mark.parametrize(
    ("where", "priority", "rule"),
    [
        (["--partition=serving"], 4, "3 (rule 'partition serving'"),
        (["--partition=serving", "--account=vision"], 2, "1 (rule 'account vision'"),
        (["--partition=batch"], 1, "0 (rule 'default'"),
    ],
)
def test_a_priority_above_a_ceiling_ends_the_job_with_a_line(cluster, where, priority, rule):
    ceilings = cluster.folder / "ceilings"
    ceilings.write_text(CEILINGS)
    cluster.configure_plugin(f"ceilings={ceilings}")
    done = cluster.run("srun", SHARD, *where, f"--sluice-priority={priority}", "echo", "ran")
    assert done.returncode != 0 and done.stdout == ""
    assert f"sluice: priority {priority} is above the ceiling of this job, {rule} of the site)" in done.stderr
    done = cluster.run("srun", SHARD, *where, f"--sluice-priority={priority - 1}", "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\n") and "sluice:" not in done.stderr
    # A node that Slurm drains because of a user's mistake would be worse than the mistake.
    out = cluster.folder / "refused.%a"
    batch = ["--array=0-1", *where, f"--sluice-priority={priority}", "-o", str(out), "--wrap=echo ran"]
    assert cluster.run("sbatch", "-W", SHARD, *batch).returncode != 0
    for task in ("refused.0", "refused.1"):
        said = (cluster.folder / task).read_text()
        assert "ran" not in said.split() and rule in said
    wait_until(cluster.is_idle, "the node is not drained")


def test_a_user_cannot_deceive_the_ceiling_with_the_environment(cluster):
    ceilings = cluster.folder / "ceilings"
    ceilings.write_text(CEILINGS)
    cluster.configure_plugin(f"ceilings={ceilings}")
    done = cluster.run("srun", SHARD, "-p", "batch", "--sluice-priority=1", "true", SLURM_JOB_PARTITION="serving")
    assert "rule 'default'" in done.stderr


def test_without_the_ceilings_nobody_gets_a_priority_above_0(cluster):
    cluster.configure_plugin("ceilings=/nowhere/ceilings")
    done = cluster.run("srun", SHARD, "--sluice-priority=1", "echo", "ran")
    assert done.returncode != 0 and "/nowhere/ceilings cannot be read: No such file" in done.stderr
    assert cluster.run("srun", SHARD, "--sluice-priority=0", "echo", "ran").stdout == "ran\n"


def test_two_users_on_one_gpu_are_refused(cluster):
    """They would have two boards, and the priorities would do nothing."""
    first = cluster.start("srun", SHARD, "--sluice-priority=0", "sleep", "60")
    wait_until(lambda: "controller.0" in state_files(), "the first job runs")
    second = cluster.run("srun", SHARD, "--sluice-priority=1", "echo", "ran", uid=NOBODY)
    assert second.returncode != 0 and second.stdout == ""
    assert "sluice: GPU 0 is shared with job" in second.stderr and "(uid 0)" in second.stderr
    cluster.configure_plugin("default=0")
    unasked = cluster.run("srun", SHARD, "echo", "ran", uid=NOBODY)
    assert unasked.stdout == "ran\n" and "; the job runs without Sluice" in unasked.stderr
    first.terminate()
    first.wait()


def test_every_job_on_the_gpu_is_looked_at(cluster):
    for job, uid in ((1, 0), (2, NOBODY)):
        (STATE / f"job.{job}").write_text(f"{uid} 0 \n0\n\n")
    try:
        job = {"SLURM_JOB_UID": "0", "SLURM_JOB_GPUS": "0", "SLURM_JOB_ID": "3"}
        subprocess.run([cluster.folder / "prolog"], env=os.environ | job, check=True)
        said = (STATE / "job.3").read_text().splitlines()[2]
        assert said.startswith(f"refused GPU 0 is shared with job 2 of another user (uid {NOBODY})")
    finally:
        for job in (1, 2, 3):
            (STATE / f"job.{job}").unlink(missing_ok=True)


def test_two_users_on_two_gpus_have_a_controller_each(cluster):
    show = ["--sluice-priority=1", "sh", "-c", "printenv SLUICE_PRIORITY; ps -C sluice-controller -o uid="]
    first = cluster.start("srun", "--gres=gpu:1", "--sluice-priority=0", "sleep", "60")
    wait_until(lambda: "controller.0" in state_files(), "the first job runs")
    second = cluster.run("srun", "--gres=gpu:1", *show, uid=NOBODY)
    assert second.stdout.split() == ["1", "0", str(NOBODY)] and "sluice" not in second.stderr
    wait_until(lambda: f"controller.{NOBODY}" not in state_files(), "the epilog ends that user's controller")
    assert "controller.0" in state_files()
    first.terminate()
    first.wait()


def test_jobs_that_ask_for_nothing(cluster):
    show = ["sh", "-c", "echo $SLUICE_PRIORITY-$LD_PRELOAD"]
    assert cluster.run("srun", SHARD, *show).stdout == "-\n"
    cluster.configure_plugin("default=0")
    assert cluster.run("srun", SHARD, *show).stdout == f"0-{INTERPOSER}\n"
    # Also when the user has set what `sluice exec` sets.
    assert cluster.run("srun", SHARD, *show, SLUICE_PRIORITY="9").stdout == f"0-{INTERPOSER}\n"
    session = ["srun", SHARD, "printenv", "SLUICE_SESSION"]
    assert cluster.run(*session, SLUICE_SESSION="mine").stdout == "default\n"
    cluster.configure_plugin("default=0 session=gpu")
    assert cluster.run(*session, SLUICE_SESSION="mine").stdout == "gpu\n"
    without_gpu = cluster.run("srun", *show)
    assert without_gpu.stdout == "-\n" and "sluice" not in without_gpu.stderr


def test_a_fault_of_ours_does_not_end_the_job(cluster):
    cluster.configure_prolog("--max-hold never")
    done = cluster.run("srun", SHARD, "--sluice-priority=1", "sh", "-c", "echo ran$LD_PRELOAD")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "sluice: no controller: sluice controller: --max-hold" in done.stderr
    assert "the job runs without Sluice" in done.stderr
    # As with job_container/tmpfs: another /dev/shm than that of the prolog.
    other_shm = f"{BUILD}/libexec/sluice/slurm-prolog && exec sed -i '1s/ .*/ 1/' {STATE}/job.$SLURM_JOB_ID"
    (cluster.folder / "prolog").write_text(f"#!/bin/sh\n{other_shm}\n")
    done = cluster.run("srun", SHARD, "--sluice-priority=1", "sh", "-c", "echo ran$LD_PRELOAD")
    assert done.stdout == "ran\n" and "sluice: this job has a /dev/shm of its own" in done.stderr
    (cluster.folder / "prolog").write_text("#!/bin/sh\n")
    done = cluster.run("srun", SHARD, "--sluice-priority=1", "echo", "ran")
    assert done.stdout == "ran\n" and "the prolog of Sluice did not run on this node" in done.stderr


def test_a_wrong_line_in_plugstack_is_named(cluster):
    cluster.configure_plugin("defualt=0")
    done = cluster.run("srun", SHARD, "echo", "ran")
    assert done.stdout == "ran\n" and "plugstack.conf: 'defualt=0' is not default=0-255" in done.stderr
    cluster.configure_plugin("defualt=0", mode="required")
    assert cluster.run("srun", "true").returncode != 0


def test_an_update_of_slurm_costs_the_priorities_and_no_job(cluster, tmp_path):
    """A plugin of another release, or none: jobs run without Sluice, and the node starts."""
    source = tmp_path / "other.c"
    source.write_text('const char plugin_name[] = "sluice", plugin_type[] = "spank";\n'
                      "const unsigned int plugin_version = 0x130000, spank_plugin_version = 1;\n")  # fmt: skip
    other = tmp_path / "spank_sluice.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", other, source], check=True)
    for plugin in (other, tmp_path / "missing.so"):
        cluster.configure_plugin("default=0", plugin=plugin)
        cluster.restart_slurmd()
        wait_until(cluster.is_idle, "the node is ready")
        done = cluster.run("srun", SHARD, "sh", "-c", "echo ran$LD_PRELOAD")
        assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
        asked = cluster.run("srun", SHARD, "--sluice-priority=1", "true")
        assert asked.returncode != 0 and "--sluice-priority" in asked.stderr
        cluster.configure_plugin("default=0", mode="required", plugin=plugin)
        assert cluster.run("srun", SHARD, "true").returncode != 0


def test_the_line_of_the_guide_shows_what_a_job_got(cluster):
    guide = Path(__file__).parents[2] / "docs" / "guide" / "slurm.md"
    (line,) = [line for line in guide.read_text().splitlines() if line.startswith("srun --gres=shard:1 --sluice-prio")]
    done = cluster.run(*shlex.split(line), PATH=f"{BUILD}/bin:{os.environ['PATH']}")
    assert done.stdout.splitlines()[:3] == ["0", "default", INTERPOSER], done.stderr
    assert "session default: controller pid" in done.stdout


def test_the_controller_of_another_user_is_left_alone(tmp_path):
    """The pid that the prolog has written may be that of another process by now."""
    program = tmp_path / "sluice-controll"
    shutil.copy("/bin/sleep", program)
    STATE.mkdir(parents=True, exist_ok=True)
    (STATE / "lock").touch()
    other = subprocess.Popen(["setpriv", f"--reuid={NOBODY}", "--clear-groups", program, "60"])
    try:
        wait_until(lambda: Path(f"/proc/{other.pid}/comm").read_text() == "sluice-controll\n", "it runs")
        (STATE / "controller.0").write_text(f"{other.pid}\n")
        job = {"SLURM_JOB_UID": "0", "SLURM_JOB_ID": "3"}
        subprocess.run([BUILD / "libexec" / "sluice" / "slurm-epilog"], env=os.environ | job, check=True)
        assert "controller.0" not in state_files()
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(timeout=1)
    finally:
        other.kill()
        other.wait()


def test_taken_out_it_leaves_jobs_alone(cluster):
    job = cluster.start("srun", SHARD, "--sluice-priority=0", "sleep", "60")
    wait_until(lambda: "controller.0" in state_files(), "the job runs")
    (cluster.folder / "plugstack.conf").write_text("")
    assert cluster.run("srun", SHARD, "sh", "-c", "echo ran$LD_PRELOAD").stdout == "ran\n"
    assert job.poll() is None and "controller.0" in state_files()
    job.terminate()
    job.wait()
