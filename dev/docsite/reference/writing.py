"""Markdown: tables, and the words that stand in their cells."""

from collections.abc import Iterable, Sequence


def whole(title: str, *parts: str) -> str:
    note = "<!-- Made from the code by `make docs`. Change the code, not this page. -->"
    return "\n\n".join([f"# {title}", note, *parts]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(cell, row))} |" for row in rows)])


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def sentence(doc: str | None) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((doc or "").strip().split("\n\n")[0].split())
