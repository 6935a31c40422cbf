#!/usr/bin/env python3
"""A stand-in for tritonserver: answers as ready, with a child that ignores SIGTERM and a file in /dev/shm."""

import http.server
import os
import signal
import subprocess
import sys
from pathlib import Path

options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
prefix = options["--backend-config"].removeprefix("python,shm-region-prefix-name=")
models = Path(options["--model-repository"])
Path(f"/dev/shm/{prefix}region").touch()
child = subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
(models / "pids").write_text(f"{os.getpid()} {child.pid}")
if (models / "broken").exists():
    print("I1 x] \"failed to load 'broken' version 1: Internal: no such file\"" + "\n| table |" * 9, flush=True)
    sys.exit(1)


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
http.server.HTTPServer(("127.0.0.1", int(options["--http-port"])), Answers).serve_forever()
