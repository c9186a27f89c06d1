"""The pages say what the program does."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley_edge import cli, errors

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "edge.md").read_text()
SOURCE = "".join(path.read_text() for path in (ROOT / "edge" / "src").rglob("*.py"))


def commands(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, child in action.choices.items():
                yield from commands(child, f"{name} {word}".strip())
            return
    yield name, parser


def test_every_command_and_option_is_documented() -> None:
    for name, parser in commands(cli.command_line()):
        assert f"`{name}" in PAGE, name
        for action in parser._actions:
            assert (
                not action.option_strings
                or f"`{action.option_strings[-1]}`" in PAGE
                or "--help" in action.option_strings
            )


def test_every_exit_code_is_documented_twice() -> None:
    codes = [
        errors.OK,
        errors.ERROR,
        errors.USAGE,
        errors.UNREACHABLE,
        errors.NOT_ACCEPTED,
        errors.PROFILE,
        errors.INTERRUPTED,
    ]
    for code in codes:
        assert f"| {code} |" in PAGE
        assert re.search(rf"^  {code}  ", cli._EXIT_CODES, re.MULTILINE)


def test_every_code_of_a_failure_is_documented() -> None:
    codes = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', SOURCE)) | {"CANCELED"}
    named = {code for code in codes if not code.startswith("A2A_")} - {
        "HTTP_PROXY",
        "O_CLOEXEC",
        "CREATE_NEW_PROCESS_GROUP",
    }
    assert "ADAPTER_TIMEOUT" in named
    assert {code for code in named if f"`{code}`" not in PAGE} == set()


@pytest.mark.parametrize("page", ["docs/edge.md", "edge/README.md"])
def test_the_adapters_in_the_pages_work(page: str) -> None:
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert snippets
    for snippet in snippets:
        exec(compile(snippet, page, "exec"), {"__name__": "page"})
