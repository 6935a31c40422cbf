"""Figures in words, the same in all parts of a page."""


def milliseconds(ns: float) -> str:
    ms = ns / 1e6
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms" if ms >= 10 else f"{ms:.2f} ms"


def percent(share: float) -> str:
    """Cut, so that 100 % means all."""
    return f"{int(share * 1000 + 1e-9) / 10:g} %"


def short_name(name: str, length: int = 60) -> str:
    """A C++ kernel's name without arguments, cut in the middle."""
    name = name.removeprefix("void ").split("(", 1)[0] if not name.startswith("(") else name
    name = name or "an unnamed kernel"
    return name if len(name) <= length else name[: length // 2] + "..." + name[-length // 2 + 3 :]
