"""Where programs are that definitions name."""

import sys
from pathlib import Path

import pytest

from parley.drivers.kind import program_at
from parley.errors import Invalid


def test_python_is_the_one_that_runs_the_server_whatever_the_path_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Path(program_at("python", tmp_path)).parent == Path(sys.executable).parent
    assert program_at("./python", tmp_path) == str(other)


def test_other_names_are_looked_for_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "some-program"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    with pytest.raises(Invalid, match="on the PATH"):
        program_at("some-program", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program_at("some-program", tmp_path) == str(other)
