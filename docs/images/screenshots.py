"""Makes the pictures of docs/images of runs on the simulated GPU, or some of them, in six minutes:

.venv/bin/python docs/images/screenshots.py build/bin/sluice docs/images [report] [sweep]

The machine should have nothing else to do: the report explains the slowest job, whatever delayed it.
"""

import io
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
_TOGETHER = [_LOW | {"control": {"control": True, "policy": "device:200us"}}, _HIGH | {"control": {"control": True}}]
# How many real seconds, ten of which are one of the simulated GPU.
_SECONDS = 10
_SWEEP_SECONDS = 22  # Twenty jobs of train: fewer name no best value.


def _run(sluice: str, folder: Path, models: list) -> None:
    file = folder / "experiment.json"
    out = "default" if len(models) > 1 else f"{models[0]['output_file_name']}-alone"
    file.write_text(json.dumps({"models": models, "exp_dur": _SECONDS}))
    subprocess.run([sluice, "run", file, "--gpu", "sim", "--trace", "--out", folder / out], check=True)


def _save(page, target: Path, **options) -> None:
    picture = Image.open(io.BytesIO(page.screenshot(**options))).convert("RGB")
    # A sixth of the size; text and bars have few colours.
    picture = picture.quantize(200, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    picture.convert("RGB").save(target, lossless=True, quality=100, method=6)
    print(f"{target}: {target.stat().st_size // 1024} KB")


def _report(sluice: str, images: Path, folder: Path) -> None:
    for models in ([_LOW], [_HIGH], _TOGETHER):
        _run(sluice, folder, models)
    page_file = folder / "report.html"
    alone = ["--alone", folder / "train-alone", "--alone", folder / "serve-alone"]
    subprocess.run([sluice, "report", folder / "default", *alone, "-o", page_file], check=True)
    with browser.opened(page_file) as page:
        _save(page, images / "report.webp", full_page=True)
    with browser.opened(page_file, dark=True) as page:
        _save(page.locator("section").first, images / "timeline-dark.webp")
    with browser.opened(page_file) as page:
        _save(page.locator("section").first, images / "timeline.webp")


def _sweep(sluice: str, images: Path, folder: Path) -> None:
    experiment, out = folder / "swept.json", folder / "sweep"
    experiment.write_text(json.dumps({"models": _TOGETHER, "exp_dur": _SWEEP_SECONDS}))
    values = ["--model", "train", "--policy", "sync:{1,2,4,8,20,50,100,1000}"]
    subprocess.run([sluice, "sweep", experiment, *values, "--gpu", "sim", "--out", out], check=True)
    with browser.opened(out / "sweep.html") as page:
        _save(page, images / "sweep.webp", full_page=True)


_PARTS = {"report": _report, "sweep": _sweep}


def main(sluice: str, images: Path, parts: list[str]) -> None:
    images.mkdir(parents=True, exist_ok=True)
    for part in parts:
        with tempfile.TemporaryDirectory() as scratch:
            _PARTS[part](sluice, images, Path(scratch))


if __name__ == "__main__":
    if len(sys.argv) < 3 or set(sys.argv[3:]) - set(_PARTS):
        sys.exit(__doc__)
    main(str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]), sys.argv[3:] or list(_PARTS))
