"""The records of one trace file in chunks, and the table of its names."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sluice_tools.trace import format as fmt

CHUNK_RECORDS = 1 << 18  # 16 MiB: what is held of a file at a time


def iter_chunks(path: Path, chunk_records: int = CHUNK_RECORDS) -> Iterator[np.ndarray]:
    """All records of the file in order. The last of a killed process may be cut off: whole records
    only, and those that were never written (kind 0) come as they are.

    Read and not mapped, so that a long file does not count as memory of this process.
    """
    with path.open("rb") as file:
        file.seek(fmt.HEADER_SIZE)
        while len(chunk := np.fromfile(file, fmt.RECORD, chunk_records)):
            yield chunk


def select(path: Path, kinds: tuple[int, ...], chunk_records: int = CHUNK_RECORDS):
    """Arrays of the records of these kinds, a chunk at a time."""
    for chunk in iter_chunks(path, chunk_records):
        chosen = chunk[np.isin(chunk["kind"], kinds)]
        if len(chosen):
            yield chosen


class Names:
    """Texts by number. A kernel's number may be used before, and long before, its text is written."""

    def __init__(self, path: Path):
        pieces: dict[int, dict[int, bytes]] = {}
        lengths: dict[int, int] = {}
        for records in select(path, (fmt.NAME_KIND,)):
            for piece in records.view(fmt.NAME):
                number = int(piece["name"])
                text = bytes(piece["text"]) + bytes(piece["text_goes_on"])
                pieces.setdefault(number, {})[int(piece["part"])] = text
                lengths[number] = int(piece["length"])
        self._texts = {n: self._join(pieces[n], lengths[n]) for n in pieces}

    @staticmethod
    def _join(parts: dict[int, bytes], length: int) -> str:
        """With ... from the first piece that was not written."""
        text = b""
        for part in range(-(-length // fmt.NAME_PIECE)):
            if part not in parts:
                return text.decode("utf-8", "replace") + "..."
            text += parts[part]
        return text[:length].decode("utf-8", "replace")

    def categorical(self, numbers: np.ndarray, unknown):
        """A pandas Categorical of the texts. `unknown`: what stands for a number without a text,
        one for all or one each."""
        import pandas as pd

        seen, codes = np.unique(numbers, return_inverse=True)
        texts = [self._texts.get(int(number)) for number in seen]
        missing = np.array([text is None for text in texts], bool)
        words = list(dict.fromkeys([t for t in texts if t is not None]))
        fillers = [unknown] if isinstance(unknown, str) else sorted(set(unknown.tolist()))
        for filler in fillers:
            if filler not in words and missing.any():
                words.append(filler)
        place = {word: i for i, word in enumerate(words)}
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
