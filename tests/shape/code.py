"""The Python of both distributions, parsed once."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVER, EDGE = ROOT / "src", ROOT / "edge" / "src"


@cache
def modules(source: Path) -> dict[str, ast.Module]:
    """By dotted name; a package is the module of its `__init__`."""
    return {_name(file, source): ast.parse(file.read_text("utf-8")) for file in sorted(source.rglob("*.py"))}


def _name(file: Path, source: Path) -> str:
    parts = file.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
