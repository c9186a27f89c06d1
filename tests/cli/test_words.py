"""Parsing and formatting of the commands, without a server."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from parley.cli import app
from parley.cli.addresses import AgentAddress, NoCommonProtocol, _jsonrpc, is_ours
from parley.cli.chat import media_type, parts
from parley.cli.rendering import MAX_NAME, ArtifactFile, FileExists, artifact_files, safe_name, write
from parley.cli.runs import RunRow, ago, lines, shortened, since_time, state_name
from parley.errors import ConfigurationError

NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("90s", "2026-05-04T11:58:30.000Z"),
        ("15m", "2026-05-04T11:45:00.000Z"),
        ("1h30m", "2026-05-04T10:30:00.000Z"),
        ("2d", "2026-05-02T12:00:00.000Z"),
        ("1w", "2026-04-27T12:00:00.000Z"),
        ("2026-05-04T10:00:00Z", "2026-05-04T10:00:00.000Z"),
        ("2026-05-04T10:00:00+02:00", "2026-05-04T08:00:00.000Z"),
    ],
)
def test_since_is_a_time_ago_or_a_time(text: str, at: str) -> None:
    assert since_time(text, NOW) == at


def test_a_day_is_a_day_where_one_is() -> None:
    here = datetime.fromisoformat("2026-05-01").astimezone()
    assert datetime.fromisoformat(since_time("2026-05-01", NOW)) == here


@given(text=st.one_of(st.text(max_size=12), st.from_regex(r"[0-9]{1,30}[smhdwx]", fullmatch=True)))
def test_any_other_since_is_refused_in_words(text: str) -> None:
    try:
        since_time(text, NOW)
    except ConfigurationError as error:
        told = error.message
    else:
        return
    assert "--since" in told


def test_states_are_read_as_everybody_writes_them() -> None:
    for text in ("input-required", "input_required", "INPUT-REQUIRED", "TASK_STATE_INPUT_REQUIRED", "input-needed"):
        assert state_name(text) == "input_required"
    assert state_name("cancelled") == "canceled"
    with pytest.raises(ConfigurationError):
        state_name("busy")


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("2026-05-04T11:59:18Z", "42s ago"),
        ("2026-05-04T11:00:00Z", "1h ago"),
        ("2026-05-01T12:00:00Z", "3d ago"),
        ("2026-05-04T12:00:09Z", "0s ago"),
        ("never", "never"),
    ],
)
def test_how_long_ago(at: str, words: str) -> None:
    assert ago(at, NOW) == words


def test_what_was_said_is_one_line_without_control_characters() -> None:
    assert shortened("a\n  b\x1b[31m", 80) == "a b [31m"
    assert shortened("x" * 10, 5) == "xxxx…"


def test_a_listing_is_cut_only_where_it_does_not_hurt() -> None:
    id_ = "01a1e325-7c6b-7419-86f8-b3bef223694e"
    row = RunRow(id_, "input_required", "2026-05-04T11:00:00Z", "c", "writer", said="x" * 200)
    head, line = lines([row], True, 80, NOW)
    assert head.split() == ["id", "agent", "state", "when", "question"]
    assert line.startswith(f"{row.id}  writer  input-required  1h ago  xxx")
    assert line.endswith("x…")
    assert len(lines([row], True, 120, NOW)[1]) == 120


def test_a_message_is_made_of_text_files_and_data(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("{}")
    assert parts("hi", [str(file)], "[1]") == [
        {"text": "hi"},
        {"raw": "e30=", "mediaType": "application/json", "filename": "a.json"},
        {"data": [1]},
    ]
    assert media_type("unknown", b"words") == "text/plain"
    assert media_type("unknown", b"\xff") == "application/octet-stream"


@given(name=st.text(max_size=300), fallback=st.text(max_size=40))
def test_a_files_name_never_leads_elsewhere(name: str, fallback: str) -> None:
    safe = safe_name(name, fallback, "text/plain")
    assert 0 < len(safe) <= MAX_NAME + 5
    assert safe not in (".", "..")
    assert not set(safe) & set('/\\\x00:*?"<>|\n')
    assert not safe.startswith(".")
    assert (Path("/x") / safe).parent == Path("/x")


@pytest.mark.parametrize(
    ("given_name", "safe"),
    [
        ("../../etc/passwd", "passwd"), ("..\\..\\boot.ini", "boot.ini"), ("/etc/shadow", "shadow"),
        ("..", "made.txt"), ("", "made.txt"), (".bashrc", "bashrc"), ("con.txt", "_con.txt"), ("a\x1b.md", "a_.md"),
    ],
)  # fmt: skip
def test_names_are_cut_to_their_last_component(given_name: str, safe: str) -> None:
    assert safe_name(given_name, "made", "text/plain") == safe


@pytest.mark.parametrize(
    ("name", "file"), [("report.md", "report.md"), ("Version 1. Draft", "a.txt"), ("Notes", "a.txt")]
)
def test_an_artifact_that_is_named_as_a_file_is_saved_as_one(name: str, file: str) -> None:
    task = {"artifacts": [{"artifactId": "a", "name": name, "parts": [{"text": "words"}]}]}
    assert [one.name for one in artifact_files(task)] == [file]


def test_artifacts_get_names_of_their_own() -> None:
    def artifact(id_: str, *content: dict[str, object]) -> dict[str, object]:
        return {"artifactId": id_, "parts": list(content)}

    task = {
        "artifacts": [
            artifact("x", {"text": "a", "filename": "A.txt"}, {"text": "b", "filename": "a.txt"}),
            artifact("response-1", {"text": "c"}, {"data": {"n": 1}}, {"url": "https://a.example/b"}),
        ]
    }
    files = list(artifact_files(task))
    assert [one.name for one in files] == ["A.txt", "a-2.txt", "response-1.txt", "response-1.json", "response-1.bin"]
    assert files[-1].url == "https://a.example/b"


def test_nothing_is_written_over_and_no_link_is_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "b").symlink_to(outside)
    files = [ArtifactFile("x", "a", b"1", "text/plain"), ArtifactFile("x", "b", b"2", "text/plain")]
    with pytest.raises(FileExists, match="b"):
        write(files, folder)
    assert not (folder / "a").exists()
    assert [path.read_bytes() for path in write(files, folder, force=True)] == [b"1", b"2"]
    assert outside.read_text() == "precious"
    assert not (folder / "b").is_symlink()


def test_a_token_is_for_its_own_server() -> None:
    place = AgentAddress("echo", "http://a.example/", "secret")
    assert place.address == "http://a.example/agents/echo"
    assert place.token_for(place.address) == "secret"
    assert place.token_for("http://a.example.evil/agents/echo") is None
    assert AgentAddress(None, "http://a.example", None).address == "http://a.example/"


def test_a_card_says_where_to_send_to_or_why_not() -> None:
    def card(*interfaces: tuple[str, str]) -> dict[str, object]:
        return {
            "supportedInterfaces": [
                {"protocolBinding": binding, "protocolVersion": version, "url": f"http://a.example/{binding}"}
                for binding, version in interfaces
            ]
        }

    assert _jsonrpc(card(("GRPC", "1.0"), ("JSONRPC", "0.3"), ("JSONRPC", "1.0")), "x") == "http://a.example/JSONRPC"
    with pytest.raises(NoCommonProtocol, match=r"GRPC 1.0"):
        _jsonrpc(card(("GRPC", "1.0")), "x")
    with pytest.raises(NoCommonProtocol, match=r"A2A 0.3.0"):
        _jsonrpc({"url": "http://a.example", "protocolVersion": "0.3.0"}, "x")
    assert not is_ours({"capabilities": {"extensions": None}})
    assert is_ours({"capabilities": {"extensions": [{"uri": "urn:parley:extension:fork:1"}]}})


def commands(command: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not hasattr(command, "commands"):
        return {path: command}
    found: dict[tuple[str, ...], Any] = {}
    for name, child in command.commands.items():
        found |= commands(child, (*path, name))
    return found


def test_every_command_and_option_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    sections = {section.split("\n", 1)[0].strip(" `"): section for section in page.split("\n## ")[1:]}
    missing: list[str] = []
    for path, command in commands(typer.main.get_command(app)).items():
        section = sections.get(f"parley {' '.join(path)}", "")
        if not section:
            missing.append(" ".join(path))
        missing += [
            f"{' '.join(path)} {option}"
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
            if option.startswith("--") and option != "--help" and f"`{option}" not in section
            and option not in ("--url", "--token", "--json", "--data-dir")
        ]  # fmt: skip
    assert not missing
    for shared in ("--url", "--token", "--json", "--data-dir"):
        assert f"`{shared}`" in page


def test_help_imports_nothing_that_a_command_needs() -> None:
    code = (
        "import sys, parley.cli; print([n for n in ('httpx2', 'starlette', 'asyncpg', 'joserfc') if n in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout.replace("'", '"')) == []
