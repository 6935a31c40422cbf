"""Draws docs/images/top.svg: `sluice top` with three programs on the simulated GPU, as it prints into a pipe.

python3 docs/images/top.py build docs/images/top.svg
"""

import os
import subprocess
import sys
import time
from html import escape
from pathlib import Path

_COLUMN_PX, _LINE_PX, _MARGIN_PX = 7.8, 18, 16
_CLIENTS = (
    ("serve", "2", ["--kernels", "20", "--kernel-us", "40", "--period-ms", "6"]),
    ("rerank", "1", ["--kernels", "40", "--kernel-us", "60", "--period-ms", "20", "--poisson"]),
    ("train", "0", ["--kernels", "200", "--kernel-us", "120"]),
)


def _frame(build: Path) -> list[str]:
    """What top prints of the clients, which are ended then."""
    sluice, spin = build / "bin" / "sluice", build / "libexec" / "sluice" / "sluice-example-spin"
    environment = os.environ | {"SLUICE_SESSION": f"picture-{os.getpid()}", "COLUMNS": "100"}
    clients = [
        subprocess.Popen(
            [sluice, "exec", "--gpu", "sim", "--priority", priority, "--name", name, "--", spin, *options],
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        for name, priority, options in _CLIENTS
    ]
    try:
        time.sleep(16)  # what the session has gained is there after ten
        shown = subprocess.run([sluice, "top", "--interval", "2"], env=environment, stdout=subprocess.PIPE, check=True)
    finally:
        for client in clients:
            client.terminate()
            client.wait()
    return shown.stdout.decode().rstrip().splitlines()


def main(build: Path, target: Path) -> None:
    lines = ["$ sluice top", *_frame(build)]
    width = max(map(len, lines)) * _COLUMN_PX + 2 * _MARGIN_PX
    height = len(lines) * _LINE_PX + 2 * _MARGIN_PX
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'height="{height}" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">',
        "<title>sluice top with three clients on the simulated GPU</title>",
        f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#0d1117"/>',
    ]
    for number, line in enumerate(lines):
        y = _MARGIN_PX + _LINE_PX * (number + 0.8)
        # A fixed advance, so that columns align in every monospace font.
        length = f'textLength="{len(line) * _COLUMN_PX:.1f}"' if line else ""
        parts.append(
            f'<text x="{_MARGIN_PX}" y="{y:.1f}" fill="#e6edf3" xml:space="preserve" {length}>{escape(line)}</text>'
        )
    target.write_text("\n".join([*parts, "</svg>"]) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
