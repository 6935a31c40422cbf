"""Packs: xz-compressed JSON lines (docs/reference/programs-format.md). Needs no TVM."""

import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path

from sluice_tools.errors import usage_error


def write_lines(path: Path, objects: list[dict], append: bool = False) -> None:
    """One xz stream for all `objects`, in one write: a reader sees all of them or a torn stream at the end."""
    text = "".join(json.dumps(item, separators=(",", ":")) + "\n" for item in objects)
    with path.open("ab" if append else "wb") as file:
        file.write(lzma.compress(text.encode()))


def whole_streams(data: bytes) -> tuple[list[bytes], int]:
    """The text of each complete xz stream, and the number of bytes that they take."""
    texts, used = [], 0
    while used < len(data):
        decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
        try:
            text = decoder.decompress(data[used:])
        except lzma.LZMAError:
            break
        if not decoder.eof:
            break
        texts.append(text)
        used = len(data) - len(decoder.unused_data)
    return texts, used


def read_lines(path: Path) -> Iterator[dict]:
    """All objects. A torn stream at the end is dropped, and said on standard error."""
    data = path.read_bytes()
    texts, used = whole_streams(data)
    if not texts:
        raise usage_error(f"{path} is not a pack (xz-compressed JSON lines)")
    if used < len(data):
        print(f"{path}: dropped {len(data) - used} bytes of a torn last piece", file=sys.stderr)
    for number, line in enumerate(b"".join(texts).splitlines(), 1):
        try:
            item = json.loads(line)
        except ValueError:
            raise usage_error(f"{path}: line {number} is not JSON") from None
        if not isinstance(item, dict) or "kind" not in item:
            raise usage_error(f'{path}: line {number} has no "kind"')
        yield item


def drop_torn_end(path: Path) -> None:
    data = path.read_bytes()
    _, used = whole_streams(data)
    if used < len(data):
        print(f"{path}: dropped {len(data) - used} bytes of a torn last piece", file=sys.stderr)
        with path.open("r+b") as file:
            file.truncate(used)
