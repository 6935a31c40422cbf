"""Where the tests find the package and the fixture pack."""

from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
PACKAGE = TREE / "tools" / "python"
FIXTURE = TREE / "tests" / "data" / "small.programs"
