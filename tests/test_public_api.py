"""Programs import the public names, and those alone: the list, the packages and the pages agree."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import a2a_server
from dev.docsite.reference.python import PUBLIC, described, examples
from dev.docsite.reference.signatures import methods, signature

ROOT = Path(__file__).parent.parent
SHOWN = [
    *ROOT.glob("*.md"),
    ROOT / "edge" / "README.md",
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "examples").rglob("*.md"),
    *(ROOT / "examples").rglob("*.py"),
    *(ROOT / "src" / "parley" / "cli" / "templates").rglob("*.tmpl"),
]
"""Pages and programs that users copy from."""
_IMPORT = re.compile(
    r"\b(?:from ((?:parley|parley_edge|a2a_server)\b[\w.]*) import (\([^)]*\)|[\w, ]+)"
    r"|import ((?:parley|parley_edge|a2a_server)\b[\w.]*))"
)
_PLAIN = re.compile(r"(?!What |Who|Whe|How |Those |Such )\S")


def shown() -> dict[str, set[str]]:
    """By module: the names that are imported from it; none where it is imported as a whole."""
    found: dict[str, set[str]] = {}
    for file in SHOWN:
        for module, names, whole in _IMPORT.findall(file.read_text("utf-8")):
            found.setdefault(module or whole, set()).update(re.findall(r"\w+", names))
    return found


@pytest.mark.parametrize("module", PUBLIC)
def test_a_module_offers_the_listed_names(module: str) -> None:
    imported = importlib.import_module(module)
    assert sorted(imported.__all__) == sorted(PUBLIC[module])
    for name in PUBLIC[module]:
        assert getattr(imported, name) is not None


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_described(module: str) -> None:
    imported = importlib.import_module(module)
    words = {name: described(imported, name) for name in PUBLIC[module]}
    assert {name: text for name, text in words.items() if not _PLAIN.match(text)} == {}


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_method_is_described(module: str) -> None:
    imported = importlib.import_module(module)
    found = {f"{name}.{one.call}": one.about for name in PUBLIC[module] for one in methods(getattr(imported, name))}
    assert {call: about for call, about in found.items() if not _PLAIN.match(about)} == {}


def test_signatures_are_those_of_the_code() -> None:
    client = importlib.import_module("parley.client")
    assert signature(client.message, "message").startswith("message(\n    text: Content,\n    *,\n    task: str")
    assert signature(client.Client, "Client").startswith(
        "Client(\n    url: str,\n    *,\n    token: str | None = None,"
    )
    assert signature(importlib.import_module("parley").Note, "Note") == "Note(notes: Mapping[str, str])"
    calls = [one.call for one in methods(client.Client)]
    assert "await get(task: str) -> Json" in calls
    assert not [call for call in calls if "self" in call]


def test_every_example_belongs_to_a_public_module() -> None:
    assert examples().keys() <= PUBLIC.keys()


def test_what_the_pages_show_can_be_imported_and_is_public() -> None:
    found = shown()
    assert {
        "parley", "parley.client", "parley.compat", "parley.drivers.graph", "parley.node", "parley.node.verifying",
        "parley.security.secrets", "parley.telemetry", "parley.testing.servers", "parley_edge.adapter",
    } <= found.keys()  # fmt: skip
    for module, names in found.items():
        imported = importlib.import_module(module)
        assert [name for name in names if not hasattr(imported, name)] == [], module
        assert names - set(PUBLIC.get(module, ())) == set(), f"{module} is shown, and not listed as public."


def test_the_modules_of_the_organisation_server_keep_their_names() -> None:
    """Contract 001 names them; each says which part of Parley does its work."""
    names = {module.name for module in pkgutil.iter_modules(a2a_server.__path__)}
    assert names == {
        "agent_bridge", "agent_card", "config", "run", "server", "task_registry", "translation",
    }  # fmt: skip
    for name in names:
        imported = importlib.import_module(f"a2a_server.{name}")
        assert all(hasattr(imported, offered) for offered in imported.__all__)
