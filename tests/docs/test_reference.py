"""The reference is made from the code, and the pages that explain it say nothing else."""

import re
from pathlib import Path

import pytest

from dev.docsite.reference import FOLDER, PAGES
from dev.docsite.reference.errors import kinds
from parley.errors import ParleyError
from parley.faces.a2a.errors import fault_of
from parley.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_what_is_kept_is_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == PAGES[name](), "run `make docs`"


def test_nothing_else_lies_beside_it() -> None:
    assert {file.name for file in FOLDER.iterdir()} == set(PAGES)


def test_every_code_there_is_is_explained() -> None:
    page = (DOCS / "errors.md").read_text("utf-8")
    assert [kind.code for kind in kinds() if f"`{kind.code}`" not in page] == []


def test_the_codes_of_json_rpc_are_explained_as_they_are() -> None:
    rows = re.findall(r"^\| (`[^|]*`) \| [^|]* \| (-\d+) \|$", (DOCS / "errors.md").read_text("utf-8"), re.MULTILINE)
    told = {code: int(rpc) for codes, rpc in rows for code in re.findall(r"`(\w+)`", codes)}
    told = {code: rpc for code, rpc in told.items() if rpc != -32020}  # MCP's alone
    assert len(told) > 30
    known = {kind.code: fault_of(_made(kind)).rpc for kind in kinds()}
    assert {code: rpc for code, rpc in told.items() if known[code] != rpc} == {}


def _made(kind: type[ParleyError]) -> ParleyError:
    error = ParleyError.__new__(kind)
    ParleyError.__init__(error, "")
    return error


def test_the_defaults_of_settings_are_explained_as_they_are() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `([^|`]*)` \|", (DOCS / "settings.md").read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 25
    wrong = {
        name: (told, Settings.model_fields[name].default)
        for name, told in rows
        if told not in Settings.model_fields and told.lower() != _written(Settings.model_fields[name].default)
    }
    assert wrong == {}


def _written(default: object) -> str:
    return f"{default:g}" if isinstance(default, float) else str(default).lower()
