"""`parley tools`, and the example that the pages show."""

import json
import os
import sys
from pathlib import Path

import pytest

from parley.cli.definitions import run_tools

ROOT = Path(__file__).parent.parent.parent
HOSTILE = ROOT / "tests" / "tools" / "mcp" / "hostile.py"


@pytest.mark.slow
def test_servers_are_shown_with_their_tools_or_with_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "a.yaml").write_text(
        f"driver: llm\nmodel: offline\nmcp:\n  - {{name: s, run: [{sys.executable}, {HOSTILE}]}}\n"
        "  - {name: gone, run: [sh, -c, 'exit 3']}\n"
    )
    (tmp_path / "parley.toml").write_text(f'[[mcp]]\nname = "all"\nrun = ["{sys.executable}", "{HOSTILE}"]\n')
    assert run_tools(None, as_json=True) == 1
    found = {(one["server"], one["agent"]): one for one in json.loads(capsys.readouterr().out)}
    assert [found[key]["state"] for key in (("all", None), ("s", "a"), ("gone", "a"))] == ["ready", "ready", "failed"]
    assert found["s", "a"]["tools"][0] == {
        "name": "s/echo", "description": "Does echo.", "writes": False, "inputSchema": {"type": "object"},
    }  # fmt: skip
    assert found["gone", "a"]["reason"]
    assert run_tools(["agents"], as_json=False) == 1
    assert "Does echo." in capsys.readouterr().out


@pytest.mark.slow
def test_the_example_of_an_agent_has_its_tools(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert run_tools([str(ROOT / "examples" / "mcp" / "finance.yaml")], as_json=True) == 0
    names = [tool["name"] for one in json.loads(capsys.readouterr().out) for tool in one["tools"]]
    assert names == ["supabase-mcp/supabase-query", "charts/chart-generator"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mcp: [{name: s}]", "either `run` or `url`"),
        ("mcp: [{name: s, run: [sh], url: 'http://x'}]", "either `run` or `url`"),
        ("mcp: [{name: a/b, run: [sh]}]", "a name must have"),
        ("mcp: [{name: s, run: [no-such-program-at-all]}]", "is not on the PATH"),
        ("mcp: [{name: s, run: sh -c true}]", "mcp[0].run"),
        ("mcp: [{name: s, url: 'ftp://x'}]", "http"),
        ("mcp: [{name: s, url: 'http://u:p@x'}]", "must not contain credentials"),
        ("mcp: [{name: s, run: [sh]}, {name: s, run: [sh]}]", "two servers"),
        ("mcp: [{name: s, run: [sh], headers: {a: b}}]", "`headers` are for servers with a `url`"),
        ("mcp: [{name: s, run: [sh], wat: 1}]", "wat"),
    ],
)
def test_what_is_wrong_with_a_server_is_told_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(f"driver: llm\nmodel: offline\n{text}\n")
    assert run_tools(["a.yaml"], as_json=False) == 2
    error = capsys.readouterr().err
    assert "a.yaml:3" in error
    assert said in error
