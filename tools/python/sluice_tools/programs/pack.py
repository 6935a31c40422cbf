"""Packs: xz-compressed JSON lines (docs/reference/programs-format.md). Needs no TVM."""

import json
import lzma
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from sluice_tools.common.errors import usage_error

_BLOCK = 1 << 16  # of one call: what an error in a later block would lose
_STREAM_HEADER = lzma.compress(b"")[:12]  # that of each stream: its magic number, its kind of check and their checksum


def write_lines(path: Path, objects: list[dict], append: bool = False) -> None:
    """One xz stream for all `objects`, in one write: a reader sees all of them or a torn stream at the end."""
    text = "".join(json.dumps(item, separators=(",", ":")) + "\n" for item in objects)
    with path.open("ab" if append else "wb") as file:
        file.write(lzma.compress(text.encode()))


def streams(data: bytes) -> tuple[list[bytes], int, bytes]:
    """The text of each complete xz stream, the number of bytes that they take, and the whole lines of a torn rest."""
    texts, used = [], 0
    while used < len(data):
        decoder, blocks, at = lzma.LZMADecompressor(format=lzma.FORMAT_XZ), [], used
        with suppress(lzma.LZMAError):
            while not decoder.eof and at < len(data):
                blocks.append(decoder.decompress(data[at : at + _BLOCK]))
                at += _BLOCK
        text = b"".join(blocks)
        if not decoder.eof:
            return texts, used, text[: text.rfind(b"\n") + 1]
        texts.append(text)
        used = min(at, len(data)) - len(decoder.unused_data)
    return texts, used, b""


def _read_streams(path: Path) -> tuple[bytes, list[bytes], int, bytes]:
    """The bytes of the file, and their streams. A damaged stream before others is not taken for a torn end: the others
    would be dropped."""
    data = path.read_bytes()
    texts, used, rest = streams(data)
    if (good := data.find(_STREAM_HEADER, used + 1)) >= 0:
        raise usage_error(
            f"{path}: damaged in the piece from byte {used} to {good}; nothing is changed: copy the pack again from "
            "where it is whole, or make it again"
        )
    return data, texts, used, rest


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def read_lines(path: Path, torn: Callable[[str], None] = _say) -> Iterator[dict]:
    """All objects. Of a torn stream at the end these are its whole lines; `torn` is told."""
    data, texts, used, rest = _read_streams(path)
    if not texts and not rest:
        raise usage_error(f"{path} is not a pack (xz-compressed JSON lines)")
    if used < len(data):
        kept = rest.count(b"\n")
        torn(f"{path}: torn: the last piece of {len(data) - used} bytes is not complete; {kept} lines of it are read")
    for number, line in enumerate(b"".join([*texts, rest]).splitlines(), 1):
        try:
            item = json.loads(line)
        except ValueError:
            raise usage_error(f"{path}: line {number} is not JSON") from None
        if not isinstance(item, dict) or "kind" not in item:
            raise usage_error(f'{path}: line {number} has no "kind"')
        yield item


def mend_torn_end(path: Path) -> None:
    """Makes a complete stream of the whole lines of a torn one at the end. A crash leaves the file as it was."""
    data, _, used, rest = _read_streams(path)
    if used == len(data):
        return
    mended = path.with_name(path.name + ".mended")
    mended.write_bytes(data[:used] + (lzma.compress(rest) if rest else b""))
    mended.replace(path)
