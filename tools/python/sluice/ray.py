"""Ray: a runtime environment that gives tasks, actors and replicas of Serve a priority, and a
decorator for Serve that makes each request a job. docs/guide/python.md shows both.
"""

import functools
import inspect
import logging
import shlex
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ray._private.runtime_env.context import RuntimeEnvContext
from ray._private.runtime_env.plugin import RuntimeEnvPlugin

from sluice._jobs import check_seconds
from sluice._library import command
from sluice.asgi import AHEAD_S, RequestJob

Handler = Callable[[Any, Any], Awaitable[Any]]

_OPTIONS = ("priority", "policy", "target", "name", "session")  # as those of `sluice exec`
_CHECK_LIMIT_S = 20


class Plugin(RuntimeEnvPlugin):
    """runtime_env={"sluice": {"priority": 1}}: the worker process is started with `sluice exec`.

    Ray loads it where RAY_RUNTIME_ENV_PLUGINS='[{"class": "sluice.ray.Plugin"}]' is set when the
    node starts.
    """

    name = "sluice"

    @staticmethod
    def validate(runtime_env_dict: Mapping[str, Any]) -> None:
        """Raises ValueError, one line, for a value that `sluice exec` refuses. Called on the node of the worker."""
        prefix = _prefix(runtime_env_dict["sluice"])
        check = subprocess.run(
            [*prefix[:-1], "--no-intercept", "--", "true"], capture_output=True, text=True, timeout=_CHECK_LIMIT_S
        )
        if check.returncode != 0:
            said = check.stderr.strip().removeprefix("sluice exec: ")
            raise ValueError(f"runtime_env['sluice']: {said}")

    def modify_context(
        self, uris: list[str], runtime_env: Mapping[str, Any], context: RuntimeEnvContext, logger: logging.Logger
    ) -> None:
        context.py_executable = f"{shlex.join(_prefix(runtime_env['sluice']))} {context.py_executable}"


def _prefix(options: Any) -> list[str]:
    """The command line in front of the worker's, up to and with `--`."""
    if not isinstance(options, Mapping) or "priority" not in options:
        raise ValueError(f"runtime_env['sluice'] is {options!r}: write {{'priority': N}}, with N from 0 to 255")
    unknown = sorted(set(map(str, options)) - set(_OPTIONS))
    if unknown:
        raise ValueError(f"runtime_env['sluice'] has no {unknown[0]!r}; it has {', '.join(_OPTIONS)}")
    program = command()
    if program is None:
        raise ValueError("runtime_env['sluice']: this node has no program `sluice`; install Sluice on every node")
    given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    return [program, "exec", *given, "--"]


def announced(ahead: float = AHEAD_S) -> Callable[[Handler], Handler]:
    """For `async def __call__(self, request)` of a Serve deployment: each HTTP request is a job.

    The job is announced when the headers arrive, begins when the body is complete, and ends when
    the method returns. `ahead` is as for sluice.asgi.AnnounceMiddleware.
    """
    check_seconds("sluice.ray.announced: ahead", ahead)  # A wrong value is an error now, and not at the first request.

    def decorate(method: Handler) -> Handler:
        if not inspect.iscoroutinefunction(method):
            raise TypeError(
                f"sluice.ray.announced: {getattr(method, '__name__', method)} is not `async def` (self, request); "
                "decorate other methods with @sluice.job()"
            )

        @functools.wraps(method)
        async def handle(replica: Any, request: Any) -> Any:
            with RequestJob(request.scope, request.receive, ahead) as tracked:
                return await method(replica, type(request)(request.scope, tracked.receive))

        return handle

    return decorate
