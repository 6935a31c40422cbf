"""A server that batches continuously, as LLM servers do: while there are requests, it is never idle.

batching_server_on_gpu.py PORT IN_FLIGHT [polls]. Each request takes some steps. With two steps in flight the GPU has
the next step before the server waits for one. 0 in flight: each step is a job of its own, back to back. polls: it asks
for its events again and again, and never waits.
"""

import http.server
import sys
import threading
import time

from http_server_on_gpu import Gpu

_STEPS_OF_REQUEST = 6


class Engine(threading.Thread):
    """Runs steps while requests are open."""

    def __init__(self, in_flight: int, polls: bool):
        super().__init__(daemon=True)
        self._gpu = Gpu()
        self._polls = polls
        self._events = [self._gpu.make_event() for _ in range(max(in_flight, 1))] if in_flight else []
        self._open: list[list] = []  # steps left, and who waits
        self._come = threading.Condition()
        self.start()

    def request(self) -> None:
        done = threading.Event()
        with self._come:
            self._open.append([_STEPS_OF_REQUEST, done])
            self._come.notify()
        done.wait()

    def run(self) -> None:
        self._gpu.use()
        step = 0
        while True:
            with self._come:
                while not self._open:
                    self._come.wait()
            self._step(step)
            step += 1
            with self._come:
                for one in self._open:
                    one[0] -= 1
                    if one[0] == 0:
                        one[1].set()
                self._open = [one for one in self._open if one[0] > 0]

    def _step(self, step: int) -> None:
        if not self._events:
            self._gpu.job()
            return
        self._gpu.launch()
        self._gpu.record(self._events[step % len(self._events)])
        if step + 1 < len(self._events):
            return
        event = self._events[(step + 1) % len(self._events)]
        while self._polls and not self._gpu.is_over(event):
            time.sleep(0.0005)
        if not self._polls:
            self._gpu.wait(event)


def main() -> None:
    port, in_flight = int(sys.argv[1]), int(sys.argv[2])
    engine = Engine(in_flight, "polls" in sys.argv[3:])

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            engine.request()
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format, *args):
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
