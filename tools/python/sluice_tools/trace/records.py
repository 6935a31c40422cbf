"""The records of one trace file in chunks, and the table of its names."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sluice_tools.common.progress import counted
from sluice_tools.trace import format as fmt

CHUNK_RECORDS = 1 << 18  # 16 MiB: what is held of a file at a time
_FIRST_ADDED = 1 << 62  # no process has so many names


def iter_chunks(path: Path, schema: fmt.Schema) -> Iterator[np.ndarray]:
    """All records of the file in order. The last of a killed process may be cut off: whole records
    only, and those that were never written (kind 0) come as they are.

    Read and not mapped, so that a long file does not count as memory of this process.
    """
    with path.open("rb") as file:
        file.seek(fmt.HEADER_SIZE)
        total = (path.stat().st_size - fmt.HEADER_SIZE) // schema.record.itemsize
        yield from counted(f"reading {path.name}", total, _chunks(file, schema.record))


def _chunks(file, record: np.dtype) -> Iterator[np.ndarray]:
    while len(chunk := np.fromfile(file, record, CHUNK_RECORDS)):
        yield chunk


def select(path: Path, schema: fmt.Schema, kinds: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Arrays of the records of these kinds, a chunk at a time."""
    for chunk in iter_chunks(path, schema):
        chosen = chunk[np.isin(chunk["kind"], kinds)]
        if len(chosen):
            yield chosen


class Overview:
    """What one look at a file tells: `counts` of kinds, holes before the last record (`unwritten`),
    the latest time (`last_ns`), and the records of which there are few."""

    _FEW = (fmt.NAME_KIND, fmt.JOB_BEGIN, fmt.JOB_END, fmt.CLOCK, fmt.STEP, fmt.WINDOW)

    def __init__(self, path: Path, header: fmt.Header):
        self.counts = np.zeros(max(fmt.KINDS) + 1, np.int64)
        self.last_ns = header.begin_monotonic_ns
        few = [np.empty(0, header.schema.record)]
        position, last, written = 0, -1, 0
        for chunk in iter_chunks(path, header.schema):
            places = np.flatnonzero(np.isin(chunk["kind"], fmt.KINDS))
            if len(places):
                last = position + int(places[-1])
                known = chunk[places]
                self.counts += np.bincount(known["kind"], minlength=len(self.counts))
                self.last_ns = max(self.last_ns, self._last(known))
                few.append(known[np.isin(known["kind"], self._FEW)])
            written += len(places)
            position += len(chunk)
        self.unwritten = last + 1 - written
        self._few = np.concatenate(few)

    @staticmethod
    def _last(records: np.ndarray) -> int:
        # Names have no times; the second time of a clock record is of another clock.
        kind = records["kind"]
        ends = np.where(kind == fmt.CLOCK, records["begin_ns"], records["end_ns"])
        return int(ends[kind != fmt.NAME_KIND].max(initial=0))

    def few(self, kind: int) -> np.ndarray:
        return self._few[self._few["kind"] == kind]


class Names:
    """Texts by number. A kernel's number may be used before, and long before, its text is written."""

    def __init__(self, records: np.ndarray, schema: fmt.Schema):
        """`records`: those of names."""
        self._piece = schema.name_piece
        pieces: dict[int, dict[int, bytes]] = {}
        lengths: dict[int, int] = {}
        for piece in records.view(schema.name):
            number = int(piece["name"])
            text = bytes(piece["text"]) + bytes(piece["text_goes_on"])
            pieces.setdefault(number, {})[int(piece["part"])] = text
            lengths[number] = int(piece["length"])
        self._texts = {n: self._join(pieces[n], lengths[n]) for n in pieces}
        self._added: dict[str, int] = {}

    def add(self, texts) -> np.ndarray:
        """Numbers for texts that the file does not have."""
        for text in texts:
            if text not in self._added:
                self._added[text] = _FIRST_ADDED + len(self._added)
                self._texts[self._added[text]] = text
        return np.array([self._added[text] for text in texts], np.uint64)

    def _join(self, parts: dict[int, bytes], length: int) -> str:
        """With ... from the first piece that was not written."""
        text = b""
        for part in range(-(-length // self._piece)):
            if part not in parts:
                return text.decode("utf-8", "replace") + "..."
            text += parts[part]
        return text[:length].decode("utf-8", "replace")

    def categorical(self, numbers: np.ndarray, unknown):
        """A pandas Categorical of the texts. `unknown`: the text of a number that
        has none: one for all numbers, or one for each."""
        import pandas as pd

        seen, codes = np.unique(numbers, return_inverse=True)
        texts = [self._texts.get(int(number)) for number in seen]
        missing = np.array([text is None for text in texts], bool)
        words = list(dict.fromkeys([t for t in texts if t is not None]))
        fillers = [unknown] if isinstance(unknown, str) else sorted(set(unknown.tolist()))
        for filler in fillers:
            if filler not in words and missing.any():
                words.append(filler)
        place: dict[str | None, int] = {word: i for i, word in enumerate(words)}
        table = np.array([place.get(text, -1) for text in texts], np.int32)
        result = table[codes] if len(seen) else np.empty(0, np.int32)
        if missing.any():
            lacking = missing[codes]
            if isinstance(unknown, str):
                result[lacking] = place[unknown]
            else:
                for filler in fillers:
                    result[lacking & (unknown == filler)] = place[filler]
        return pd.Categorical.from_codes(result, words)
