"""sluice.asgi by the bare ASGI protocol: a job that never ends holds best effort, one that never begins leaves the
request unprotected, and a middleware that changes a message breaks the application."""

import asyncio
import time

import pytest
from fake_jobs import Calls
from sluice import _jobs
from sluice.asgi import AnnounceMiddleware, has_body

START = {"type": "http.response.start", "status": 200, "headers": []}
LAST = {"type": "http.response.body", "body": b"ok"}
DISCONNECT = {"type": "http.disconnect"}


def part(body: bytes, more: bool = False) -> dict:
    return {"type": "http.request", "body": body, "more_body": more}


def scope(kind: str = "http", path: str = "/predict", **headers: str) -> dict:
    fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": kind, "path": path, "method": "POST", "http_version": "1.1", "headers": fields}


POST = scope(content_length="2")


@pytest.fixture
def calls(monkeypatch) -> Calls:
    made = Calls()
    monkeypatch.setattr(_jobs, "_interposer", made.functions())
    return made


def serve(app, calls: Calls, of: dict, *incoming: dict, **how) -> list:
    """The events of one request: calls of the interposer, ("sent", message), and what the app notes in `calls`."""
    messages = list(incoming)

    async def receive():
        await asyncio.sleep(0)
        return messages.pop(0)

    async def send(message):
        calls.append(("sent", message))
        await asyncio.sleep(0)

    calls.clear()
    asyncio.run(AnnounceMiddleware(app, **how)(of, receive, send))
    return list(calls)


def names(events: list) -> list:
    return [name if name != "sent" else details[0]["type"].split(".")[-1] for name, *details in events]


async def answer(of, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send(START)
    await send(LAST)


def test_a_request_is_announced_then_begun_then_ended_before_the_last_byte_is_awaited(calls):
    events = serve(answer, calls, POST, part(b"a", more=True), part(b"b"))
    assert names(events) == ["announce", "begin", "start", "end", "body"]
    assert events[1][1] == events[3][1]  # begins what was announced
    assert events[2][1] is START and events[4][1] is LAST


def test_the_job_begins_with_the_last_part_of_the_body(calls):
    async def app(of, receive, send):
        for _ in range(2):
            message = await receive()
            calls.append(("part", message["body"]))
        await send(LAST)

    events = serve(app, calls, POST, part(b"a", more=True), part(b"b"))
    assert names(events) == ["announce", "part", "begin", "part", "end", "body"]


def test_a_request_without_a_body_begins_at_once(calls):
    """Its application may never call receive()."""

    async def app(of, receive, send):
        await send(LAST)

    assert names(serve(app, calls, scope())) == ["begin", "end", "body"]


def test_a_stream_is_a_job_to_its_last_byte(calls):
    async def app(of, receive, send):
        await receive()
        await send(START)
        for i in range(3):
            await send({"type": "http.response.body", "body": b"x", "more_body": i < 2})

    events = serve(app, calls, POST, part(b"ab"))
    assert names(events) == ["announce", "begin", "start", "body", "body", "end", "body"]


def test_a_file_that_the_server_sends_ends_the_job(calls):
    async def app(of, receive, send):
        await send(START)
        await send({"type": "http.response.pathsend", "path": "/x"})
        calls.append(("background",))

    events = serve(app, calls, scope())
    assert names(events) == ["begin", "start", "end", "pathsend", "background"]


def test_work_after_the_response_is_outside_the_job(calls):
    """Background tasks would hold best effort without a client that waits."""

    async def app(of, receive, send):
        await answer(of, receive, send)
        calls.append(("background", await receive()))

    events = serve(app, calls, POST, part(b"ab"), part(b""))
    assert names(events) == ["announce", "begin", "start", "end", "body", "background"]


def test_a_client_that_leaves_early_cancels_the_job(calls):
    async def app(of, receive, send):
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        calls.append(("cleaning",))

    events = serve(app, calls, POST, part(b"a", more=True), DISCONNECT)
    assert names(events) == ["announce", "cancel", "cleaning"]


def test_a_client_that_leaves_later_leaves_the_job_to_the_application(calls):
    """Its work goes on until the application has noticed."""

    async def app(of, receive, send):
        await receive()
        assert await receive() is DISCONNECT
        calls.append(("working",))

    events = serve(app, calls, POST, part(b"ab"), DISCONNECT)
    assert names(events) == ["announce", "begin", "working", "end"]


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
def test_an_exception_passes_and_ends_the_job(calls, begun, error):
    async def app(of, receive, send):
        if begun:
            await receive()
        raise error

    with pytest.raises(error):
        serve(app, calls, POST, part(b"ab"))
    assert names(calls) == (["announce", "begin", "end"] if begun else ["announce", "cancel"])


def test_an_answer_without_the_body_cancels_the_job(calls):
    """As 401 and 413 do."""

    async def app(of, receive, send):
        await send(LAST)

    assert names(serve(app, calls, POST)) == ["announce", "cancel", "body"]


@pytest.mark.parametrize("kind", ["websocket", "lifespan", "something-new"])
def test_other_protocols_pass_untouched(calls, kind):
    async def app(of, receive, send):
        assert of["type"] == kind and receive.__name__ == "receive" and send.__name__ == "send"
        await send({"type": f"{kind}.send"})

    of = scope(kind)
    if kind == "lifespan":
        del of["path"]
    assert names(serve(app, calls, of)) == ["send"]


def test_only_chosen_paths_are_jobs(calls):
    """The health check of a load balancer would hold best effort."""
    for path, begins in [("/predict/a", True), ("/health", False), ("/v2/predict", False)]:
        events = serve(answer, calls, scope(path=path), part(b""), paths=["/predict", "/embed"])
        assert ("begin" in names(events)) == begins


def test_requests_at_once_have_jobs_of_their_own(calls):
    """State in the middleware would end the job of another request."""
    gate = asyncio.Event()

    async def app(of, receive, send):
        await receive()
        if of["path"] == "/slow":
            await gate.wait()
        await send(LAST)
        gate.set()

    async def receive():
        return part(b"ab")

    async def send(message):
        pass

    async def both():
        middleware = AnnounceMiddleware(app)
        await asyncio.gather(*(middleware({**POST, "path": path}, receive, send) for path in ("/slow", "/fast")))

    asyncio.run(both())
    slow, fast = (call[2] for call in calls if call[0] == "begin")
    assert [call for call in calls if call[0] == "end"] == [("end", fast), ("end", slow)]


def test_wrong_arguments_are_refused_when_the_server_starts(calls):
    with pytest.raises(ValueError, match=r"AnnounceMiddleware: ahead: -1 is not"):
        AnnounceMiddleware(answer, ahead=-1)
    with pytest.raises(TypeError, match=r"give a list, such as \['/predict'\]"):
        AnnounceMiddleware(answer, paths="/predict")
    assert calls == []  # A call before a server forks would leave its children without Sluice.


def test_ahead_is_the_time_of_the_announcement(calls):
    async def receive():
        return part(b"ab")

    async def send(message):
        pass

    before = time.monotonic_ns()
    asyncio.run(AnnounceMiddleware(answer, ahead=5.0)(POST, receive, send))
    assert before + 5e9 <= calls[0][1] <= time.monotonic_ns() + 5e9


@pytest.mark.parametrize(
    "version, method, headers, body",
    [
        ("1.1", "POST", {"content_length": "5"}, True),
        ("1.1", "POST", {"content_length": "0"}, False),
        ("1.1", "POST", {"Transfer_Encoding": "chunked"}, True),
        ("1.1", "POST", {}, False),
        ("1.1", "GET", {"content_length": "5"}, True),
        ("2", "GET", {}, False),
        ("2", "POST", {}, True),
        ("2", "POST", {"content_length": "0"}, False),
    ],
)
def test_which_requests_have_a_body(version, method, headers, body):
    assert has_body({**scope(**headers), "http_version": version, "method": method}) == body
