"""One cluster for all tests: two of them would want the same ports and the same folder."""

import subprocess

import pytest
from cluster import Cluster, state_files, wait_until


@pytest.fixture(scope="session")
def cluster():
    return Cluster()


@pytest.fixture(autouse=True)
def at_rest(cluster):
    cluster.configure_plugin("")
    cluster.configure_prolog("")
    yield
    for user in ("root", "nobody", "daemon"):
        subprocess.run(["scancel", f"--user={user}"], env=cluster.environment)
    wait_until(cluster.is_idle, "the node is idle")
    wait_until(lambda: not state_files(), f"the epilog removes {state_files()}")
