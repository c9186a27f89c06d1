"""`parley new` makes folders that work as they are."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from parley.cli.new import rendered
from parley.cli.options import TemplateKind


def parley(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "parley", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*TemplateKind])
def test_what_is_made_passes_its_own_test(kind: TemplateKind, tmp_path: Path) -> None:
    made = parley("new", kind, "Word Counter", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "word-counter"
    assert (folder / "README.md").read_text().startswith("# Word counter\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^[12] passed", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize("kind", [*TemplateKind])
def test_every_kind_has_code_a_readme_and_a_test(kind: TemplateKind) -> None:
    made = rendered(kind, "word-counter", "Word counter")
    assert "README.md" in made
    assert any(path.startswith("test_") for path in made)
    assert not [path for path, text in made.items() if "$" in text or ".tmpl" in path]
    for path, text in made.items():
        if path.endswith(".py"):
            compile(text, path, "exec")
        elif path.endswith(".json"):
            json.loads(text)


def test_what_is_there_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "agent.py").write_text("mine")
    refused = parley("new", "agent", "taken", cwd=tmp_path)
    assert (refused.returncode, "taken already exists" in refused.stderr) == (2, True)
    assert [one.name for one in (tmp_path / "taken").iterdir()] == ["agent.py"]
    assert (tmp_path / "taken" / "agent.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["…", "", "x" * 64])
def test_a_name_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    assert parley("new", "agent", name, cwd=tmp_path).returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_a_program_is_told_what_was_made(tmp_path: Path) -> None:
    told = json.loads(parley("new", "adapter", "Fax", "--to", "here", "--json", cwd=tmp_path).stdout)
    assert (told["slug"], told["folder"]) == ("fax", "here")
    assert told["files"] == ["here/README.md", "here/adapter.py", "here/test_adapter.py"]
    assert all((tmp_path / one).is_file() for one in told["files"])
