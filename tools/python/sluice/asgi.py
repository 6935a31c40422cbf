"""Middleware for ASGI servers, such as those of Starlette and FastAPI: each HTTP request is a job.

The protocol is that of https://asgi.readthedocs.io/en/latest/specs/www.html; nothing is imported.
"""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from types import TracebackType
from typing import Any

from sluice._jobs import Announcement, announce, check_seconds, job

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

AHEAD_S = 0.002


class AnnounceMiddleware:
    """Announces a job when the headers of a request arrive, begins it when the body is complete, and
    ends it with the last byte of the response, or when the application returns or fails.

    ahead: seconds from the headers until the GPU work, about. paths: only requests whose path
    begins with one of these are jobs; None: all of them. Websockets and lifespan pass unchanged.
    """

    def __init__(self, app: App, ahead: float = AHEAD_S, paths: Iterable[str] | None = None) -> None:
        if isinstance(paths, str):
            raise TypeError(f"AnnounceMiddleware: paths={paths!r} is one text; give a list, such as [{paths!r}]")
        check_seconds(
            "AnnounceMiddleware: ahead", ahead
        )  # A wrong value is an error now, and not at the first request.
        self._app = app
        self._ahead = ahead
        self._paths = None if paths is None else tuple(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._is_job(scope["path"]):
            await self._app(scope, receive, send)
            return
        with RequestJob(scope, receive, self._ahead) as request:
            await self._app(scope, request.receive, request.sending(send))

    def _is_job(self, path: str) -> bool:
        return self._paths is None or path.startswith(self._paths)


class RequestJob:
    """The job of one request, from its headers to its last byte. For one event loop."""

    def __init__(self, scope: Scope, receive: Receive, ahead: float) -> None:
        self._receive = receive
        self._has_body = has_body(scope)
        self._ahead = ahead
        self._announced: Announcement | None = None
        self._job: job | None = None
        self._ended = False

    def __enter__(self) -> "RequestJob":
        if self._has_body:
            self._announced = announce(self._ahead)
        else:
            self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    async def receive(self) -> Message:
        """In place of the server's `receive`."""
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._begin()
        elif message["type"] == "http.disconnect" and self._announced is not None:
            self._announced.cancel()
        return message

    def sending(self, send: Send) -> Send:
        """In place of the server's `send`."""

        async def send_and_end(message: Message) -> None:
            if _is_last(message):
                self.end()  # Not after the send, which waits for a slow client.
            await send(message)

        return send_and_end

    def end(self) -> None:
        self._ended = True
        if self._job is not None:
            self._job.__exit__(None, None, None)
        elif self._announced is not None:
            self._announced.cancel()

    def _begin(self) -> None:
        if self._job is None and not self._ended:
            self._job = job(self._announced)
            self._job.__enter__()


def _is_last(message: Message) -> bool:
    if message["type"] in ("http.response.body", "http.response.zerocopysend"):
        return not message.get("more_body", False)
    return message["type"] == "http.response.pathsend"


def has_body(scope: Scope) -> bool:
    """Whether a body may follow the headers."""
    headers = {name.lower(): value for name, value in scope["headers"]}
    if b"content-length" in headers:
        return headers[b"content-length"].strip() != b"0"
    if scope.get("http_version", "1.1").startswith("1"):
        return b"transfer-encoding" in headers
    return scope["method"] not in ("GET", "HEAD", "OPTIONS", "TRACE")
