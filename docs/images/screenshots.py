"""Makes the pictures of docs/images of runs on the simulated GPU:

.venv/bin/python docs/images/screenshots.py build/bin/sluice docs/images
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "python"))
import browser

_LOW = {
    "model_name": "resnet152",
    "backend": "recording",
    "recording": "resnet152_b256",
    "priority": 0,
    "output_file_name": "train",
}
_HIGH = {
    "model_name": "resnet50",
    "backend": "recording",
    "recording": "resnet50_b1",
    "priority": 1,
    "output_file_name": "serve",
    "arrival": {"kind": "periodic", "period_ms": 6, "jitter": 0.3, "seed": 1},
}
# How many real seconds, ten of which are one of the simulated GPU.
_SECONDS = 10


def _run(sluice: str, folder: Path, models: list) -> None:
    file = folder / "experiment.json"
    file.write_text(json.dumps({"models": models, "exp_dur": _SECONDS}))
    subprocess.run(
        [
            sluice,
            "run",
            file,
            "--gpu",
            "sim",
            "--trace",
            "--out",
            folder / "device-4" if len(models) > 1 else folder / f"{models[0]['output_file_name']}-alone",
        ],
        check=True,
    )


def _save(page, target: Path, **options) -> None:
    page.screenshot(path=target, **options)
    # A quarter of the size; text and bars have few colours.
    Image.open(target).convert("RGB").quantize(200, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        target, optimize=True
    )
    print(f"{target}: {target.stat().st_size // 1024} KB")


def main(sluice: str, images: Path) -> None:
    images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for models in ([_LOW], [_HIGH]):
            _run(sluice, folder, models)
        _run(
            sluice,
            folder,
            [_LOW | {"control": {"control": True, "policy": "device:4"}}, _HIGH | {"control": {"control": True}}],
        )
        report = folder / "report.html"
        subprocess.run(
            [
                sluice,
                "report",
                folder / "device-4",
                "--alone",
                folder / "train-alone",
                "--alone",
                folder / "serve-alone",
                "-o",
                report,
            ],
            check=True,
        )
        with browser.opened(report) as page:
            _save(page, images / "report.png", full_page=True)
        with browser.opened(report, dark=True) as page:
            _save(page.locator("section").first, images / "timeline-dark.png")
        with browser.opened(report) as page:
            _save(page.locator("section").first, images / "timeline.png")
        sweep = folder / "sweep"
        subprocess.run(
            [
                sluice,
                "sweep",
                folder / "experiment.json",
                "--model",
                "train",
                "--gpu",
                "sim",
                "--policy",
                "sync:{1,2,4,8,20,50,100,1000}",
                "--duration",
                "5",
                "--out",
                sweep,
            ],
            check=True,
        )
        with browser.opened(sweep / "sweep.html") as page:
            _save(page, images / "sweep.png", full_page=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]))
