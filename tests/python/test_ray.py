"""sluice.ray: a wrong value that Ray accepts would run a program at another priority than its user believes.

One test needs Ray itself and is skipped without it: pip install "ray[serve]==2.60.0"."""

import asyncio
import importlib.util
import json
import os
import stat
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import pytest
from fake_jobs import Calls
from sluice import _jobs

HAS_RAY = importlib.util.find_spec("ray") is not None
TOOLS = Path(__file__).parents[2] / "tools" / "python"
REQUEST = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-length", b"2")]}


@pytest.fixture
def ray(monkeypatch):
    """sluice.ray, with empty classes in place of Ray's where there is no Ray."""
    if not HAS_RAY:
        for name in ("ray", "ray._private", "ray._private.runtime_env"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        for name in ("plugin.RuntimeEnvPlugin", "context.RuntimeEnvContext"):
            module = types.ModuleType("ray._private.runtime_env." + name.split(".")[0])
            setattr(module, name.split(".")[1], object)
            monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "sluice.ray", raising=False)
    import sluice.ray

    return sluice.ray


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """A stand-in for the `sluice` of the node, which writes down its arguments and refuses priority 900."""
    program = tmp_path / "with blank" / "sluice"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n'
        'case "$*" in *900*) echo "sluice exec: --priority: 900 is too much" >&2; exit 2;; esac\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program


def test_a_worker_is_started_with_sluice_exec(ray, installed):
    environment = {"sluice": {"priority": 1, "name": "my model", "policy": "gate"}}
    context = types.SimpleNamespace(py_executable="/venv/bin/python -u")
    ray.Plugin.validate(environment)
    ray.Plugin().modify_context([], environment, context, None)
    assert context.py_executable == (
        f"'{installed}' exec --priority 1 --name 'my model' --policy gate -- /venv/bin/python -u"
    )
    asked = (installed.parents[1] / "calls").read_text()
    assert asked == "exec --priority 1 --name my model --policy gate --no-intercept -- true\n"


@pytest.mark.parametrize(
    "options, said",
    [
        ({"priority": 900}, "runtime_env['sluice']: --priority: 900 is too much"),
        ({"priority": 1, "polcy": "gate"}, "runtime_env['sluice'] has no 'polcy'; it has priority, policy"),
        ({"policy": "gate"}, "write {'priority': N}"),
        (3, "runtime_env['sluice'] is 3: write {'priority': N}"),
        ([("priority", 1)], "write {'priority': N}"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(ray, installed, options, said):
    with pytest.raises(ValueError) as refused:
        ray.Plugin.validate({"sluice": options})
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_node_without_sluice_refuses(ray, monkeypatch):
    """The task would run there without a priority."""
    monkeypatch.setattr(ray, "command", lambda: None)
    with pytest.raises(ValueError, match="install Sluice on every node"):
        ray.Plugin.validate({"sluice": {"priority": 1}})


class Request:
    def __init__(self, scope, receive):
        self.scope, self.receive = scope, receive


async def ready():
    return {"type": "http.request", "body": b"ab"}


def test_a_request_of_serve_is_a_job(ray, monkeypatch):
    calls = Calls()
    monkeypatch.setattr(_jobs, "_interposer", calls.functions())

    class Model:
        @ray.announced(ahead=0.5)
        async def __call__(self, request):
            """Answers."""
            calls.append(("called",))
            await request.receive()
            calls.append(("work", type(self).__name__))
            return 7

    assert asyncio.run(Model()(Request(REQUEST, ready))) == 7 and Model.__call__.__doc__ == "Answers."
    assert calls.names() == ["announce", "called", "begin", "work", "end"]


def test_wrong_uses_of_the_decorator_are_refused(ray):
    """A plain method would be given a request that it cannot read, and its job would not fit its work."""
    with pytest.raises(TypeError, match="infer is not `async def`"):

        @ray.announced()
        def infer(self, request):
            pass

    with pytest.raises(ValueError, match=r"announced: ahead: -2 is not"):
        ray.announced(ahead=-2)


REAL = """if True:
    import json, os, ray
    ray.init(num_cpus=2, include_dashboard=False, _temp_dir=TEMP, logging_level="ERROR",
             object_store_memory=100 * 2**20)
    task = ray.remote(lambda: (os.environ.get("SLUICE_PRIORITY"), os.environ.get("SLUICE_POLICY"),
                               "libsluice_intercept" in open("/proc/self/maps").read()))
    def of(**options):
        try:
            return ray.get(task.options(runtime_env={"sluice": options}).remote(), timeout=60)
        except ray.exceptions.RuntimeEnvSetupError as error:
            return str(error).strip().splitlines()[-1]
    print(json.dumps([of(priority=3, policy="gate", session=SESSION), ray.get(task.remote()), of(priority=900)]))
    ray.shutdown()
"""


@pytest.mark.skipif(not HAS_RAY, reason="needs Ray: pip install 'ray[serve]==2.60.0'")
@pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="needs a build of Sluice")
def test_a_real_node(tmp_path):
    program = Path(os.environ["SLUICE_TEST_PROGRAM"])
    environment = os.environ | {
        "PYTHONPATH": str(TOOLS),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "RAY_RUNTIME_ENV_PLUGINS": '[{"class": "sluice.ray.Plugin"}]',
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # Ray puts sockets there: their paths are limited
        code = REAL.replace("TEMP", repr(short)).replace("SESSION", f"'test-{os.getpid()}-ray'")
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=240, cwd=tmp_path
        )
    assert done.returncode == 0, done.stderr
    own, other, refused = json.loads(done.stdout.splitlines()[-1])
    assert own == ["3", "gate", True] and other == [None, None, False]
    assert "--priority: '900' is not a whole number from 0 to 255" in refused
