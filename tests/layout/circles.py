"""Circles among units that use each other; for check_includes.py and check_imports.py."""


def circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """Strongly connected components of more than one unit (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(unit):
        index[unit] = low[unit] = len(index)
        stack.append(unit)
        for other in edges.get(unit, ()):
            if other not in index:
                visit(other)
                low[unit] = min(low[unit], low[other])
            elif other in stack:
                low[unit] = min(low[unit], index[other])
        if low[unit] == index[unit]:
            at = stack.index(unit)
            if len(stack) - at > 1:
                found.append(set(stack[at:]))
            del stack[at:]

    for unit in sorted(edges):
        if unit not in index:
            visit(unit)
    return found
