"""Docstrings begin with what a thing is or does, and user-visible texts name their subject."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = [ROOT / folder for folder in ("src", "edge/src", "dev", "examples", "tests")]
SHOWN = [ROOT / folder for folder in ("src", "edge/src")]
TEMPLATES = [
    *(ROOT / "src" / "parley" / "console" / "templates").rglob("*.html"),
    *(ROOT / "src" / "parley" / "console" / "static").glob("*.js"),
]

RIDDLE = re.compile(r"(What|Who|Whose|Whether|Those|Whoever|How|Such|Somebody|Nobody|Of)\b")
UNWANTED = re.compile(
    r"\b(somebody|(?<!USER )nobody|whoever|whosoever|anybody|those who|how-manieth|forsak\w+|leavings)\b", re.I
)
"""Words that name no subject, or that the field does not use."""


def files(folders: list[Path]) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            yield file, ast.parse(file.read_text())


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Strings that stand alone: in a module, a class or a function, and below an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Strings of several words that are not docstrings: messages, labels, help."""
    apart = {id(one) for one in docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in apart and " " in str(node.value).strip():
            yield node.lineno, str(node.value)


def test_docstrings_begin_with_what_a_thing_is_or_does() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{one.lineno}: {str(one.value).strip()[:80]}"
        for file, tree in files(CODE)
        for one in docstrings(tree)
        if RIDDLE.match(str(one.value).strip())
    ]
    assert found == []


def test_messages_name_their_subject() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text[:100]!r}"
        for file, tree in files(SHOWN)
        for line, text in texts(tree)
        if UNWANTED.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.name)
def test_the_console_names_its_subjects(file: Path) -> None:
    assert UNWANTED.findall(file.read_text()) == []
