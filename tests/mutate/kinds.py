"""The fixed set of faults that a line of C++ or Python can get, found in the syntax tree of its file.

A kind is here only if its faults are rarely equivalent to the code as it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import tree_sitter_cpp
import tree_sitter_python
from tree_sitter import Language, Node, Parser

_SWAPS = {
    "compare": {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    "logic": {"&&": "||", "||": "&&", "and": "or", "or": "and"},
    "arithmetic": {"+": "-", "-": "+", "+=": "-=", "-=": "+="},
    "constant": {"true": "false", "false": "true", "True": "False", "False": "True", "0": "1", "1": "0"},
}
_OPERATIONS = {"binary_expression", "comparison_operator", "boolean_operator", "binary_operator"}
_ASSIGNMENTS = {"assignment_expression", "update_expression", "assignment", "augmented_assignment"}
_NUMBERS = {"number_literal", "user_defined_literal", "integer", "float", "true", "false"}
_EXITS = {"return_statement", "continue_statement", "break_statement", "throw_statement", "raise_statement"}
_NOTHING = {"", "{}", "nullptr", "std::nullopt", "0", "1", "true", "false", "None", "True", "False", '""', "[]"}
# The compiler looks at these, not a running program.
_COMPILED = {"static_assert_declaration", "template_argument_list", "template_parameter_list", "array_declarator"}
_COMPILED |= {"noexcept", "alignas_qualifier", "attribute_declaration", "requires_clause", "bitfield_clause"}
# Calls that change how fast the program is, or what a developer reads.
_UNSEEN_CALLS = {"reserve", "shrink_to_fit", "debug", "trace", "assert", "static_cast<void>", "yield", "_mm_pause"}
_GRAMMARS = {".py": tree_sitter_python, ".cpp": tree_sitter_cpp, ".hpp": tree_sitter_cpp}


@dataclass(frozen=True)
class Fault:
    """`start` to `end` (bytes of the file) become `new`; `nth` counts those of one kind on one line, from 1."""

    file: str
    line: int
    kind: str
    nth: int
    start: int
    end: int
    new: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.kind}" + (f":{self.nth}" if self.nth > 1 else "")

    def put_in(self, text: bytes) -> bytes:
        return text[: self.start] + self.new.encode() + text[self.end :]


def can_parse(file: str) -> bool:
    return Path(file).suffix in _GRAMMARS


@cache
def _parser(suffix: str) -> Parser:
    return Parser(Language(_GRAMMARS[suffix].language()))


def parse(file: str, text: bytes) -> Node:
    return _parser(Path(file).suffix).parse(text).root_node


def faults_of(file: str, text: bytes) -> list[Fault]:
    """All faults that the file can get, in the order of its lines."""
    count: dict[tuple[int, str], int] = {}
    faults = []
    # Sorted, because `nth` is part of a place's name.
    for start, end, line, kind, new in sorted(set(_walk(parse(file, text), file.endswith(".py")))):
        nth = count[line, kind] = count.get((line, kind), 0) + 1
        faults.append(Fault(file, line, kind, nth, start, end, new))
    return sorted(faults, key=lambda fault: (fault.line, fault.kind, fault.nth))


def _text(node: Node | None) -> str:
    return node.text.decode() if node is not None and node.text is not None else ""


def _walk(node: Node, python: bool) -> Iterator[tuple[int, int, int, str, str]]:
    preprocessed = node.type.startswith("preproc_") and node.type not in ("preproc_if", "preproc_ifdef")
    if node.type in _COMPILED or preprocessed:
        return
    if node.type in ("if_statement", "if") and any(child.type == "constexpr" for child in node.children):
        return
    for kind, at, new in _faults_at(node, python):
        yield at.start_byte, at.end_byte, at.start_point.row + 1, kind, new
    if node.type != "user_defined_literal":
        for child in node.children:
            yield from _walk(child, python)


def _faults_at(node: Node, python: bool) -> Iterator[tuple[str, Node, str]]:
    if node.type in _OPERATIONS or node.type in _ASSIGNMENTS:
        for token in node.children:
            for kind in ("compare", "arithmetic"):
                if not token.is_named and (new := _SWAPS[kind].get(token.type)):
                    yield kind, token, new
            if not token.is_named and (new := _SWAPS["logic"].get(token.type)):
                left, right = (_text(node.child_by_field_name(side)) for side in ("left", "right"))
                yield "logic", node, f"(({left}) {new} ({right}))"  # g++ refuses && next to || without brackets
    elif node.type in _NUMBERS and not _is_pure(node):
        text = _text(node)
        yield "constant", node, _SWAPS["constant"].get(text, f"({text} * 2)")
    elif condition := _condition(node):
        yield "negate", condition, f"(not ({_text(condition)}))" if python else f"!({_text(condition)})"
    if node.type == "expression_statement" and node.named_child_count:
        yield from _removed_statement(node, "pass" if python else "{}")
    if node.type == "return_statement" and node.named_child_count and _text(node.named_child(0)) not in _NOTHING:
        yield "return", node, "return None" if python else "return {};"
    if node.type in _EXITS and _only_one_in_if(node):
        yield "guard", node, "pass" if python else "{}"


def _removed_statement(node: Node, nothing: str) -> Iterator[tuple[str, Node, str]]:
    inner = node.named_child(0)
    assert inner is not None
    if inner.type in _ASSIGNMENTS:
        yield "assignment", node, nothing
    elif inner.type in ("call_expression", "call"):
        called = _text(inner.child_by_field_name("function"))
        if called.replace("->", ".").replace("::", ".").split(".")[-1] not in _UNSEEN_CALLS:
            yield "call", node, nothing


def _condition(node: Node) -> Node | None:
    """The expression that decides, unless it declares a variable."""
    if node.type in ("if_statement", "while_statement", "elif_clause"):
        found = node.child_by_field_name("condition")
        if found is not None and found.type == "condition_clause":
            found = found.child_by_field_name("value")
        return None if found is None or found.type in ("declaration", "condition_declaration") else found
    if node.type == "conditional_expression":
        return node.child_by_field_name("condition") or node.named_child(1)
    return None


def _is_pure(node: Node) -> bool:
    """Whether this is the 0 of a pure virtual function."""
    parent = node.parent
    return parent is not None and any(child.type == "function_declarator" for child in parent.children)


def _only_one_in_if(node: Node) -> bool:
    """Whether the statement is all that an if without else does: an early exit."""
    block = node.parent
    if block is not None and block.type in ("compound_statement", "block"):
        if block.named_child_count != 1:
            return False
        block = block.parent
    return block is not None and block.type == "if_statement" and block.child_by_field_name("alternative") is None
