"""Follows a page: writes its files, carries out its commands, and compares what they print."""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from unittest.mock import patch

from parley.definitions.loader import LoadedDefinitions, Sources
from parley.settings import FILE, Settings
from tests.docs.blocks import Block, steps
from tests.docs.matching import Differs, compare
from tests.docs.shell import Shell

_VARIABLE = re.compile(r"_from: (\w+)")
"""Where a definition names a variable of the environment, the reader has set it."""
SNIPPET = Path(__file__).with_name("snippet.py")


def walk(page: Iterable[Block], shell: Shell) -> None:
    for block in page:
        if block.how == "not run":
            continue
        try:
            _follow(block, shell)
        except (AssertionError, ValueError, TimeoutError, RuntimeError) as error:
            raise AssertionError(f"{block.place}: {error}\n{shell.logs()}") from None


def _follow(block: Block, shell: Shell) -> None:
    text = shell.here(block.text)
    if block.how == "runs on":
        return shell.serve(text, block.word)
    if block.file is not None:
        file = shell.folder / block.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    if block.how == "file" and block.language == "python":
        compile(text, block.file or "", "exec")
        return None
    return _LANGUAGES.get(block.language, _nothing)(block, text, shell)


def _nothing(block: Block, text: str, shell: Shell) -> None:
    pass


def _console(block: Block, text: str, shell: Shell) -> None:
    for step in steps(block.text):
        code, printed = shell.run(shell.here(step.command))
        try:
            compare(step.shown, printed, shell.known)
        except Differs as error:
            raise AssertionError(f"$ {step.command}  (exit code {code})\n{error}") from None


def _script(block: Block, text: str, shell: Shell) -> None:
    code, printed = shell.run(f"set -e\n{text}\nset +e")
    assert code == 0, f"exit code {code}:\n{text}\n{printed}"


def _python(block: Block, text: str, shell: Shell) -> None:
    file = shell.folder / (block.file or f".snippet-{block.line}.py")
    file.write_text(text, "utf-8")
    code, printed = shell.run(f"python {SNIPPET} {file}")
    assert code == 0, printed


def _yaml(block: Block, text: str, shell: Shell) -> None:
    """A definition is read as a server would read it; what else it names need not be there."""
    name = block.file or f"agents/{Path(block.page).stem}-{block.line}.yaml"
    file = shell.folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    if file.parent.name == "agents":
        with patch.dict(os.environ, dict.fromkeys(_VARIABLE.findall(text), "there")):
            faults = LoadedDefinitions(Sources((str(file),))).faults
        assert not faults, [fault.message for fault in faults]


def _toml(block: Block, text: str, shell: Shell) -> None:
    given = tomllib.loads(text)
    given.pop("agent", None)
    if block.file in (None, FILE):
        Settings.model_validate(given)


def _json(block: Block, text: str, shell: Shell) -> None:
    json.loads(text)


_LANGUAGES: dict[str, Callable[[Block, str, Shell], None]] = {
    "console": _console, "sh": _script, "prepare": _script, "python": _python, "yaml": _yaml, "toml": _toml,
    "json": _json,
}  # fmt: skip
