"""A load generator: http_load.py PORT [--count N] [--file FILE] [--pause S] [--connections N] prints, or appends, the
latency of each request."""

import http.client
import sys
import threading
import time

port, options = int(sys.argv[1]), sys.argv[2:]
count = int(options[options.index("--count") + 1]) if "--count" in options else 10**9
name = options[options.index("--file") + 1] if "--file" in options else None
pause = float(options[options.index("--pause") + 1]) if "--pause" in options else 0.03
connections = int(options[options.index("--connections") + 1]) if "--connections" in options else 1


def send() -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(count):
        begin = time.perf_counter()
        connection.request("GET", "/")
        connection.getresponse().read()
        ms = 1e3 * (time.perf_counter() - begin)
        if name:
            with open(name, "a") as file:
                print(f"request {ms:.2f}", file=file)
        else:
            print(f"took {ms:.2f} ms")
        time.sleep(pause)


threads = [threading.Thread(target=send, daemon=True) for _ in range(connections)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
