"""The model store: one folder per model, described by its model.json. Needs no torch.

A reader never sees half an export: files are made in a work folder inside the store (the same file
system, so that a rename moves them) and model.json, the last to be renamed, names only what is there.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from sluice_tools.common.errors import run_error, usage_error

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_WORK_PREFIX = ".export-"

# What makes two variants of a model the same one: an export replaces its own variant only.
_VARIANT_KEY = ("format", "dtype", "resizes", "batch", "device", "gpu_arch")


def default_store() -> Path:
    if named := os.environ.get("SLUICE_MODELS"):
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "sluice" / "models"


def variant_key(variant: dict) -> tuple:
    # Every torchscript variant of a text model takes any length, an aoti variant only its own.
    shape = tuple(variant["input"]) if variant["format"] == "aoti" else ()
    return tuple(variant.get(name) for name in _VARIANT_KEY) + shape


class Store:
    def __init__(self, folder: Path):
        self.folder = folder.expanduser().absolute()

    def model_folder(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise usage_error(f"'{name}' is not a model name (letters, digits, '.', '_' and '-')")
        return self.folder / name

    def names(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        return sorted(
            entry.name
            for entry in self.folder.iterdir()
            if _NAME.fullmatch(entry.name) and (entry / "model.json").is_file()
        )

    def read(self, name: str) -> dict | None:
        """The content of model.json; None where the store has no such model."""
        path = self.model_folder(name) / "model.json"
        try:
            model = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise run_error(f"cannot read {path}: {error}; export the model again with --force") from error
        if not isinstance(model, dict) or not isinstance(model.get("variants"), list):
            raise run_error(f"{path} has no list 'variants'; export the model again with --force")
        return model

    def require_writable(self) -> None:
        """Before minutes of work, not after them."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise run_error(
                f"cannot write to the store {self.folder}: {error.strerror}; name another with --store or SLUICE_MODELS"
            ) from error

    @contextlib.contextmanager
    def work_folder(self):
        """A folder in the store that is gone afterwards, however the work ended. What a killed
        export left is removed by the next one: a lock held by the process tells the two apart."""
        with self._locked():  # else a new folder without its lock would look abandoned to another export
            self._remove_abandoned()
            folder = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=self.folder))
            lock = os.open(folder, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)

    def remove_abandoned(self) -> None:
        """What processes left that were killed, or that a library has ended."""
        if self.folder.is_dir():
            with self._locked():
                self._remove_abandoned()

    @contextlib.contextmanager
    def _locked(self):
        """No other export is in such a block meanwhile."""
        lock = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _remove_abandoned(self) -> None:
        for folder in self.folder.glob(_WORK_PREFIX + "*"):
            with contextlib.suppress(OSError):
                lock = os.open(folder, os.O_RDONLY)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(lock)

    def publish(self, work: Path, model: dict, replace: bool) -> dict:
        """Moves the files of `model` from `work` into the store and adds its variants to those
        there (`replace`: instead of those there). Returns what model.json now says."""
        target = self.model_folder(model["name"])
        with self._locked():  # another export of the same model
            old = None if replace else self.read(model["name"])
            merged = {**(old or {}), **model}  # other keys stay, such as those of `sluice split`
            if old is not None:
                new_keys = {variant_key(variant) for variant in model["variants"]}
                kept = [v for v in old["variants"] if variant_key(v) not in new_keys]
                merged["variants"] = kept + model["variants"]
            draft = self._draft(work, merged)  # The disk may be full: nothing has changed so far.
            new = not target.exists()
            try:
                target.mkdir(exist_ok=True)
                for variant in model["variants"]:
                    os.replace(work / variant["file"], target / variant["file"])
                os.replace(draft, target / "model.json")
            except BaseException:
                if new:
                    shutil.rmtree(target, ignore_errors=True)
                raise
            self._remove_unnamed(target, merged)
            return merged

    @staticmethod
    def _draft(work: Path, model: dict) -> Path:
        draft = work / "model.json"
        with draft.open("w") as file:
            json.dump(model, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        return draft

    @staticmethod
    def _remove_unnamed(target: Path, model: dict) -> None:
        """Files of variants that were replaced under another name, or left by a killed export."""
        named = {variant["file"] for variant in model["variants"]} | {"model.json"}
        for path in target.iterdir():
            if path.name not in named and path.suffix in (".pt", ".pt2"):
                path.unlink()
