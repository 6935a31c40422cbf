"""The CSV of `nsys stats -r kernexectrace`, some rows at a time.

Columns are found by their heads, with or without their unit, in any order. What is written as nsys
writes it (whole ns, commas between columns) is read by the fast path of pandas; anything else, from
the row on at which it is met, as text.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from sluice_tools.common.errors import run_error, usage_error
from sluice_tools.parse.numbers import decimal_sign, to_numbers

CHUNK_ROWS = 500_000
NEEDED = ("API Start", "API Dur", "Kernel Start", "Kernel Dur", "PID")
_KNOWN = (
    *NEEDED,
    "Queue Start",
    "Queue Dur",
    "Total Dur",
    "TID",
    "DevId",
    "API Function",
    "GridXYZ",
    "BlockXYZ",
    "Kernel Name",
)
_UNITS_NS = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "sec": 1e9}
_HEAD = re.compile(r"(.*?)\s*(?:\((\w+)\))?")
# nsys prints what it does before the table, where its output was redirected.
_MAX_PREAMBLE_LINES = 200
_MAX_LINE = 1 << 16


class Layout:
    """Where the columns are: sep, and for each of NEEDED its position and its unit in ns."""

    def __init__(self, path: Path, line: str, sep: str):
        self.sep = sep
        self.units, self.positions = {}, {}
        heads = [head.strip().strip('"') for head in line.strip().lstrip("\ufeff").split(sep)]
        for position, head in enumerate(heads):
            found = _HEAD.fullmatch(head)
            known = next((k for k in NEEDED if found and k.lower() == found[1].lower()), None)
            if found and known and known not in self.positions:
                self.positions[known] = position
                self.units[known] = _UNITS_NS.get((found[2] or "ns").lower(), 1)
        missing = [name for name in NEEDED if name not in self.positions]
        if missing:
            raise usage_error(
                f"{path} has no column '{missing[0]}'"
                + (f" (nor {', '.join(missing[1:])})" if missing[1:] else "")
                + "; it should be what `nsys stats -r kernexectrace --format csv` writes"
            )

    @staticmethod
    def heads_in(line: str, sep: str) -> int:
        heads = {
            re.sub(r"\s*\(\w+\)$", "", h.strip().strip('"')).lower() for h in line.strip().lstrip("\ufeff").split(sep)
        }
        return len(heads & {name.lower() for name in _KNOWN})


def _encoding(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(2)
    return "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8"


class KernelCsv:
    """`rows_left_out` counts rows without a time or a pid: cut off, or not numbers."""

    def __init__(self, path: Path):
        self.path = path
        self.rows_left_out = 0
        try:
            self.size = path.stat().st_size
            self._encoding = _encoding(path)
        except OSError as error:
            raise usage_error(f"cannot read {path}: {error.strerror}") from error
        if self.size == 0:
            raise usage_error(f"{path} is empty")
        self.layout, self._head_lines = self._find_heads()

    def _find_heads(self) -> tuple[Layout, int]:
        """And the number of lines up to and with the heads."""
        with self.path.open("r", encoding=self._encoding, errors="replace", newline="\n") as file:
            for number in range(1, _MAX_PREAMBLE_LINES):
                line = file.readline(_MAX_LINE)
                if not line:
                    break
                found, sep = max((Layout.heads_in(line, sep), sep) for sep in ",;\t")
                if found >= 3:
                    return Layout(self.path, line, sep), number
        raise usage_error(
            f"{self.path} has no line with the heads of its columns (API Start (ns), "
            "...); it should be what `nsys stats -r kernexectrace --format csv` writes"
        )

    @property
    def rows_about(self) -> int:
        """By the length of the first ones."""
        with self.path.open("rb") as file:
            start = file.read(1 << 20)
        return self.size * start.count(b"\n") // len(start)

    def chunks(self) -> Iterator[pd.DataFrame]:
        """Frames with the columns of NEEDED, whole ns."""
        rows = 0
        if all(unit == 1 for unit in self.layout.units.values()):
            try:
                # A row for each line, blank ones too, so that `rows` says where to go on.
                for frame in self._read(np.int64, 0, skip_blank_lines=False):
                    rows += len(frame)
                    yield frame
                return
            except (ValueError, OverflowError):
                pass  # not plain numbers
        decimals = None
        for texts in self._read(str, rows, on_bad_lines="skip", keep_default_na=False):
            texts = texts.fillna("")
            decimals = decimals or {
                name: decimal_sign(texts.loc[texts[name] != "", name], self.layout.units[name] == 1) for name in NEEDED
            }
            yield self._numbers(texts, decimals)

    def _read(self, kind, skipped_rows: int, **options) -> Iterator[pd.DataFrame]:
        order = sorted(NEEDED, key=self.layout.positions.__getitem__)
        places = [self.layout.positions[name] for name in order]
        names = [str(place) for place in range(max(places) + 1)]
        try:
            # By its path: pandas reads an open file slower. Columns after the last one needed may be
            # more or fewer: names of kernels have commas.
            with pd.read_csv(
                self.path,
                sep=self.layout.sep,
                header=None,
                usecols=places,
                index_col=False,
                names=names,
                dtype=dict.fromkeys((names[place] for place in places), kind),
                skiprows=self._head_lines + skipped_rows,
                encoding=self._encoding,
                encoding_errors="replace",
                engine="c",
                chunksize=CHUNK_ROWS,
                **options,
            ) as reader:
                for frame in reader:
                    yield frame.set_axis(order, axis=1)[list(NEEDED)]
        except pd.errors.EmptyDataError:
            return
        except pd.errors.ParserError as error:
            if kind is not str:
                raise
            raise run_error(f"{self.path} is not a CSV: {str(error).strip()}") from error

    def _numbers(self, texts: pd.DataFrame, decimals: dict[str, str]) -> pd.DataFrame:
        numbers = pd.DataFrame(
            {name: to_numbers(texts[name], decimals[name]) * self.layout.units[name] for name in NEEDED}
        )
        whole = numbers.notna().all(axis=1)
        # A blank line is no row.
        self.rows_left_out += int((~whole & (texts != "").any(axis=1)).sum())
        return numbers[whole].round().astype(np.int64)
