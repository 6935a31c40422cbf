#!/usr/bin/env python3
"""Checks the links of every Markdown page of the tree.

usage: check_links.py [--mentions | --installed] [ROOT]

Rules, over every .md file that is not below a build folder or a folder of results at the top:
- a relative link leads to a file or folder of the tree, and its anchor to a heading of that page;
- an image exists;
- every page below docs/ is reachable from docs/README.md by links;
- a place in code, as in `shm/gates.hpp:set_job`, is a file of the tree that declares or defines this name;
- each numbered row of docs/guide/architecture.md, a step of a life, has such a place.
With --mentions also: a page that a source file names, as in "see docs/guide/traces.md", exists. With --installed only
links and images: the pages of a package, which has no code.
Each fault is one line that names file and line. Exit codes: 0 none, 1 faults, 2 wrong usage.
"""

import re
import sys
from pathlib import Path
from urllib.parse import unquote

# At the top of the tree: what builds and runs leave there.
_SKIPPED_TOP = {"build", "build-core", "build-asan", "build-tsan", "build-package", "results", "logs"}
_SOURCES = {".c", ".cmake", ".cpp", ".cu", ".def", ".h", ".hpp", ".in", ".json", ".md", ".py", ".sh", ".txt"}

_FENCE = re.compile(r"^ {0,3}(```|~~~)")
_CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_INLINE_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)>?")
_HTML = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=\"([^\"\s]+)\"")
_HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:|^//", re.IGNORECASE)
_MENTION = re.compile(r"(?<![\w/.-])docs/[\w./-]+\.md\b")
_PLACE = re.compile(r"`([\w./-]+\.(?:c|cpp|def|h|hpp|py)):([\w~:]+)`")
_STEP = re.compile(r"^\| \d+ \|")
_STEPS_PAGE = "docs/guide/architecture.md"
_IMAGE_SUFFIXES = {".png", ".svg", ".jpg", ".jpeg", ".gif", ".webp"}


def _files(root: Path):
    """Files of the tree, without hidden folders and what builds and runs leave."""
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        hidden = any(part.startswith(".") for part in parts)
        if not hidden and parts[0] not in _SKIPPED_TOP and path.is_file():
            yield path


def _prose(text: str):
    """(number, line) of each line outside fenced code, with code spans blanked out."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        found = _FENCE.match(line)
        if fence is None and found:
            fence = found.group(1)
        elif fence is not None:
            if found and found.group(1) == fence:
                fence = None
        else:
            yield number, line


def _links(text: str):
    """(line number, target) of each link and image of a page."""
    for number, line in _prose(text):
        bare = _CODE_SPAN.sub(lambda span: " " * len(span.group()), line)
        for pattern in (_INLINE_LINK, _DEFINITION, _HTML):
            for found in pattern.finditer(bare):
                yield number, found.group(1)


def _slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    text = re.sub(r"[^\w\- ]", "", text.strip().lower())
    return text.replace(" ", "-")


def anchors(text: str) -> set:
    """Anchors of all headings of a page; of equal headings the later ones are numbered."""
    found, seen = set(), {}
    for _, line in _prose(text):
        heading = _HEADING.match(line)
        if heading:
            slug = _slug(heading.group(1))
            count = seen.get(slug, 0)
            seen[slug] = count + 1
            found.add(f"{slug}-{count}" if count else slug)
    return found


class _Tree:
    def __init__(self, root: Path):
        self.root = root.resolve()
        self.pages = {path: path.read_text(errors="replace") for path in _files(self.root) if path.suffix == ".md"}
        self._anchors = {}

    def name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def has_anchor(self, page: Path, anchor: str) -> bool:
        if page not in self._anchors:
            text = self.pages.get(page) or page.read_text(errors="replace")
            self._anchors[page] = anchors(text)
        return anchor in self._anchors[page]

    def fault(self, page: Path, target: str):
        """What is wrong with one link of `page`, or None, and the page that it leads to, or None."""
        place, _, anchor = target.partition("#")
        goal = (page.parent / unquote(place)).resolve() if place else page
        if self.root not in (goal, *goal.parents):
            return "leads out of the tree", None
        if not goal.exists():
            kind = "image" if goal.suffix in _IMAGE_SUFFIXES else "file"
            return f"no such {kind}", None
        if anchor and goal.suffix == ".md" and not self.has_anchor(goal, unquote(anchor)):
            return f"{self.name(goal)} has no heading of that name", None
        return None, goal if goal.suffix == ".md" else None


def declares(text: str, suffix: str, name: str) -> bool:
    """Whether a source declares or defines a function or type of this name; calls and comments do not count."""
    last = re.escape(name.rpartition("::")[2])
    if suffix == ".py":
        found = rf"^\s*(?:async )?(?:def|class) {last}\b"
    elif suffix == ".def":
        found = rf"^[^/]*\b{last}\b"
    else:
        others = r"(?!\s*(?:\*|(?:return|throw|new|delete|else|case|if|while|for|switch)\b))"
        before = r"(?:__attribute__\(\(\w+\)\) )?(?:[ \w:<>,*&\[\]]*[\w>*&] [*&]*|\w+::)(?:\w+::)*"
        function = rf"^{others}{before}{last}\s*\("
        found = rf"{function}|^\s*(?:enum )?(?:class|struct) (?:alignas\(\w+\) )?{last}\b(?!;)"
    return re.search(found, text, re.MULTILINE) is not None


def place_faults(tree: _Tree) -> list:
    """Places in code that pages name and that are not there; steps without a place."""
    found = []
    for page, text in tree.pages.items():
        for number, line in _prose(text):
            at = f"{tree.name(page)}:{number}"
            places = _PLACE.findall(line)
            for name, function in places:
                file = tree.root / name
                if not file.is_file():
                    found.append(f"{at}: {name}: no such file")
                elif not declares(file.read_text(errors="replace"), file.suffix, function):
                    found.append(f"{at}: {name} does not declare {function}")
            if tree.name(page) == _STEPS_PAGE and _STEP.match(line) and not places:
                found.append(f"{at}: a step without a place in the code, `path/file.cpp:function`")
    return found


def faults(root: Path, installed: bool = False) -> list:
    tree = _Tree(root)
    found, leads_to = [] if installed else place_faults(tree), {}
    for page, text in tree.pages.items():
        for number, target in _links(text):
            if _ELSEWHERE.match(target):
                continue
            wrong, goal = tree.fault(page, target)
            if wrong:
                found.append(f"{tree.name(page)}:{number}: {target}: {wrong}")
            if goal:
                leads_to.setdefault(page, set()).add(goal)
    start = tree.root / "docs" / "README.md"
    reached, waiting = {start}, [start]
    while waiting:
        for goal in leads_to.get(waiting.pop(), set()) - reached:
            reached.add(goal)
            waiting.append(goal)
    found += [
        f"{tree.name(page)}: cannot be reached from docs/README.md"
        for page in tree.pages
        if page not in reached and tree.name(page).startswith("docs/")
    ]
    return found


def mention_faults(root: Path) -> list:
    """Pages that source files, help texts and READMEs name without a link, and that do not exist."""
    found = []
    for path in _files(root):
        named = path.suffix in _SOURCES or path.name == "x"
        if not named or path.name == "check_links_test.py":  # its pages are made up
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            for mention in _MENTION.findall(line):
                if not (root / mention).exists():
                    name = path.relative_to(root).as_posix()
                    found.append(f"{name}:{number}: {mention}: no such page")
    return found


def main() -> int:
    arguments = sys.argv[1:]
    mentions, installed = "--mentions" in arguments, "--installed" in arguments
    places = [argument for argument in arguments if argument not in ("--mentions", "--installed")]
    root = Path(places[0]) if places else Path.cwd()
    if len(places) > 1 or not (root / "docs").is_dir():
        print("usage: check_links.py [--mentions | --installed] [ROOT]", file=sys.stderr)
        return 2
    found = faults(root, installed) + (mention_faults(root) if mentions else [])
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
