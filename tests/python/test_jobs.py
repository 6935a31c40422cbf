"""The package `sluice`: a job that does not end holds best effort for ten seconds, and a package that fails
without Sluice makes a second version of each program necessary."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sluice
from fake_jobs import Calls
from sluice import _jobs

TOOLS = Path(__file__).parents[2] / "tools" / "python"


@pytest.fixture
def calls(monkeypatch) -> Calls:
    made = Calls()
    monkeypatch.setattr(_jobs, "_interposer", made.functions())
    return made


def test_a_block_is_a_job_and_ends_when_it_fails(calls):
    with pytest.raises(KeyError), sluice.job():
        assert calls.names() == ["begin"]
        raise KeyError
    assert calls == [("begin", 0, 1), ("end", 1)]


def test_a_job_takes_its_announcement_once(calls):
    before = time.monotonic_ns()
    coming = sluice.announce(0.25)
    with sluice.job(coming):
        coming.cancel()  # too late, and without effect
    with sluice.job(coming):
        pass
    assert before + 25e7 <= calls[0][1] <= time.monotonic_ns() + 25e7
    assert calls[1:] == [("begin", 1, 1), ("end", 1), ("begin", 0, 2), ("end", 2)]


def test_an_announcement_is_cancelled_once(calls):
    coming = sluice.announce(0)
    coming.cancel()
    coming.cancel()
    assert calls[1:] == [("cancel", 1)]


@pytest.mark.parametrize("seconds", [-0.001, float("nan"), float("inf")])
def test_times_that_mean_nothing_are_refused(calls, seconds):
    """They would become a time far in the past or the future, or a crash in ctypes."""
    with pytest.raises(ValueError, match=r"sluice\.announce: .* use 0 or more"):
        sluice.announce(seconds)
    assert calls == []


def test_each_call_of_a_function_is_a_job(calls):
    @sluice.job()
    def double(x: int) -> int:
        """Doubles."""
        return double(x - 1) + 2 if x else 0

    assert double(2) == 4 and double.__doc__ == "Doubles."
    assert calls.names() == ["begin"] * 3 + ["end"] * 3


def test_an_async_function_is_a_job_until_it_is_done(calls):
    """A decorator for plain functions would end the job when the coroutine is made."""

    @sluice.job()
    async def infer() -> str:
        await asyncio.sleep(0)
        calls.append(("work",))
        return "done"

    async def both():
        return await asyncio.gather(infer(), infer())

    assert asyncio.run(both()) == ["done", "done"]
    assert calls.names() == ["begin", "begin", "work", "end", "work", "end"]


def test_generators_are_refused(calls):
    """Their job would end before they have begun."""

    def items():
        yield 1

    async def more():
        yield 1

    for function in (items, more):
        with pytest.raises(TypeError, match=f"{function.__name__} is a generator"):
            sluice.job()(function)


def test_an_announcement_cannot_decorate(calls):
    with pytest.raises(TypeError, match="for one job"):
        sluice.job(sluice.announce(0))(print)


def test_a_job_cannot_be_entered_twice(calls):
    """The id of the first job would be lost, and it would never end."""
    one = sluice.job()
    with one, pytest.raises(RuntimeError, match="begun already"), one:
        pass
    assert calls.names() == ["begin", "end"]
    with one:
        pass
    assert calls.names() == ["begin", "end"] * 2


def test_targets(calls):
    assert sluice.set_target("p99=50ms") and sluice.set_target(None)
    assert calls == [("target", "p99=50ms"), ("target", "none")]
    with pytest.raises(ValueError, match=r"'50ms' is not a target; examples"):
        sluice.set_target("50ms")


def test_without_sluice_nothing_happens(monkeypatch):
    monkeypatch.setattr(_jobs, "_interposer", {})
    coming = sluice.announce(1)
    with sluice.job(coming):
        pass
    coming.cancel()
    assert sluice.job()(abs)(-1) == 1
    assert sluice.set_target("p99=50ms") is False and sluice.attached() is False


def python(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(TOOLS)} | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_package_imports_no_torch_and_little_else():
    """A server would start seconds later, and a program without torch could not use it."""
    code = "import sys, sluice, sluice.asgi; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert not {"torch", "numpy", "starlette", "ray", "asyncio"} & set(done.stdout.split())


@pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="needs a build of Sluice")
def test_status_shows_the_jobs_of_a_python_program(tmp_path):
    """The names and types of the functions must be those of the interposer."""
    program = os.environ["SLUICE_TEST_PROGRAM"]
    session = f"test-{os.getpid()}-jobs"
    code = f"""if True:
        import ctypes, json, subprocess, sluice
        cuda = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        assert cuda.cuInit(0) == cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
        assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0
        def look():
            said = subprocess.run([{program!r}, "status", "--json", "--session", {session!r}],
                                  capture_output=True, text=True, env={{}}).stdout
            client, = json.loads(said)["clients"]
            return client["active"], client["jobs"], (client["target"] or {{}}).get("requested")
        assert not sluice.attached()
        with sluice.job(sluice.announce(0.001)):
            seen = [look()]
        assert sluice.attached() and sluice.set_target("p99=50ms")
        print(json.dumps([*seen, look()]))"""
    command = [program, "exec", "--gpu", "sim", "--priority", "1", "--session", session, "--", sys.executable]
    done = subprocess.run(
        [*command, "-c", code],
        env=os.environ | {"PYTHONPATH": str(TOOLS)},
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    during, after = json.loads(done.stdout)
    assert during[:2] == [True, 0] and after == [False, 1, "p99=50ms"]
