"""The reference: pages that are made from the code, and kept in docs/reference so that they can be read anywhere.

`python -m dev.docsite.reference` writes them. A test compares them with what it would write.
"""

from collections.abc import Callable
from pathlib import Path

from dev.docsite.reference import actions, commands, errors, events, openapi, python, settings

FOLDER = Path(__file__).parents[3] / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings.page,
    "cli.md": commands.page,
    "errors.md": errors.page,
    "events.md": events.page,
    "actions.md": actions.page,
    "openapi.md": openapi.page,
    "python.md": python.page,
}


def write() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), "utf-8")
