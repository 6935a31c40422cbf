"""Programs in user namespaces, as in rootless containers: one that does not find the session of its user runs ungated
and delays the critical program, and a message that asks for a controller which runs already helps nobody."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

PROGRAM = os.environ.get("SLUICE_TEST_PROGRAM", "")
# The same user has uid 7 inside, and in the nested one 9.
INSIDE = ["unshare", "--user", "--map-user=7", "--map-group=7", "--"]
NESTED = [*INSIDE, "unshare", "--user", "--map-user=9", "--map-group=9", "--"]

pytestmark = [
    pytest.mark.skipif(not PROGRAM, reason="needs a build of Sluice"),
    pytest.mark.skipif(
        subprocess.run([*NESTED, "true"], capture_output=True).returncode != 0, reason="no user namespaces"
    ),
]


def spin(*options: str) -> list[str]:
    return [str(Path(PROGRAM).parents[1] / "libexec/sluice/sluice-example-spin"), *options]


def preloaded(session: str, priority: int) -> dict[str, str]:
    library = Path(PROGRAM).parents[1] / "lib/sluice"
    return os.environ | {
        "LD_PRELOAD": str(library / "libsluice_intercept.so"),
        "LD_LIBRARY_PATH": str(library / "simgpu"),
        "SLUICE_SESSION": session,
        "SLUICE_PRIORITY": str(priority),
        "SLUICE_NAME": "inside",
    }


def clients(session: str) -> dict:
    said = subprocess.run([PROGRAM, "status", "--json", "--session", session], capture_output=True, text=True).stdout
    return {client["name"]: client for client in json.loads(said or "{}").get("clients", [])}


def holders(seen: dict) -> set[str]:
    """Who has held the launches of the program outside."""
    return {wait["name"] for wait in seen.get("outside", {}).get("held_total_by", [])}


@pytest.mark.parametrize("name, namespace", [("one", INSIDE), ("nested", NESTED)])
def test_a_program_inside_gates_one_outside(name, namespace):
    # Not the session of the other case, which shows its killed programs for a moment longer.
    session = f"test-{os.getpid()}-userns-{name}"
    outside = subprocess.Popen(
        f"{PROGRAM} exec --gpu sim --session {session} --priority 0 --name outside -- "
        "sluice-example-spin --kernels 400 --seconds 60".split(),
        stdout=subprocess.DEVNULL,
    )
    inside = None
    try:
        deadline = time.monotonic() + 30
        while "outside" not in clients(session):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        command = [*namespace, *spin("--kernels", "20", "--period-ms", "6", "--seconds", "60")]
        inside = subprocess.Popen(command, env=preloaded(session, 1), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while "inside" not in holders(seen := clients(session)):
            assert time.monotonic() < deadline and inside.poll() is None, seen
            time.sleep(0.1)
        assert seen["inside"]["priority"] == 1 and seen["inside"]["pid"] == inside.pid
    finally:
        for process in filter(None, (inside, outside)):
            process.kill()
            process.wait()


def test_without_a_session_of_its_user_the_line_says_where_to_start_one():
    session = f"test-{os.getpid()}-nobody"
    done = subprocess.run(
        [*INSIDE, *spin("--seconds", "0.2")], env=preloaded(session, 1), capture_output=True, text=True, timeout=60
    )
    warnings = [line for line in done.stderr.splitlines() if "warning" in line]
    assert done.returncode == 0 and len(warnings) == 1
    assert "in a user namespace, start one on the host first" in warnings[0] and "running ungated" in warnings[0]
