"""`parley doctor` with real misconfigurations."""

import json
import os
import re
import resource
import socket
import sys
from pathlib import Path

import pytest

from parley.cli import diagnostics
from parley.cli.diagnostics import diagnose, run_doctor
from parley.processes import sandbox
from parley.settings import load
from parley.stores.sqlite_file import LOCK, lock

DEAD = "127.0.0.1:9"
DOCS = Path(__file__).parents[2] / "docs" / "doctor.md"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path


async def codes(**given: object) -> set[str]:
    settings = load(**{"port": 0, **given})
    return {one.code for one in await diagnose(settings)}


def define(here: Path, text: str) -> None:
    (here / "agents").mkdir(exist_ok=True)
    (here / "agents" / "one.yaml").write_text(text)


async def test_a_good_setup_has_no_errors(here: Path) -> None:
    define(here, "driver: llm\nmodel: offline\n")
    assert await codes() <= {"few_files", "python_slow_cookies"}


@pytest.mark.parametrize(
    ("version", "slow"),
    [((3, 11, 7), True), ((3, 11, 10), False), ((3, 12, 5), True), ((3, 12, 6), False), ((3, 13, 0), False)],
)
def test_a_python_that_reads_cookies_slowly_is_named(version: tuple[int, int, int], slow: bool) -> None:
    found = list(diagnostics.python_findings(version))
    assert [one.code for one in found] == (["python_slow_cookies"] if slow else [])
    assert all(".".join(map(str, version)) in one.message for one in found)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"host": "0.0.0.0"}, "auth_local_in_the_open"),
        ({"host": "0.0.0.0", "auth": "required"}, "public_url_missing"),
        ({"auth": "none"}, "auth_none"),
        ({"oidc_issuer": f"http://{DEAD}"}, "oidc_audience_missing"),
        ({"oidc_issuer": f"http://{DEAD}", "oidc_audience": "me"}, "issuer_unreachable"),
        ({"store": "postgres"}, "postgres_url_missing"),
        ({"store": "postgres", "postgres_url": f"postgresql://{DEAD}/x"}, "postgres_unreachable"),
        ({"store": "postgres"}, "secret_key_not_shared"),
        ({"store": "postgres"}, "blobs_not_shared"),
        ({"secret_key_file": "nowhere.key"}, "secret_key_missing"),
        ({"allow_hosts": ["10.0.0.0/8"]}, "allow_hosts_wide"),
        ({"redis_url": f"redis://{DEAD}/0"}, "redis_unreachable"),
        ({"mcp": [{"name": "tools", "run": ["no-such-program"]}]}, "mcp_command_missing"),
        ({}, "no_agents"),
        ({"data_dir": "/dev/null/x"}, "data_dir_not_writable"),
    ],
)
async def test_a_setting(given: dict[str, object], code: str) -> None:
    assert code in await codes(**given)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("driver: llm\nmodel: openai:gpt-x\n", "model_key_missing"),
        ("driver: nonsense\n", "definition_wrong"),
        ("driver: org\norg:\n  folder: nowhere\n", "definition_wrong"),
        (f"driver: agentzero\nagentzero:\n  url: http://{DEAD}\n", "agentzero_unreachable"),
        ("driver: llm\nmodel: offline\nmcp:\n  - name: x\n    run: [no-such-program]\n", "definition_wrong"),
    ],
)
async def test_a_definition(here: Path, text: str, code: str) -> None:
    define(here, text)
    assert code in await codes()


@pytest.mark.parametrize("model", ["openai:gpt-x", "offline"])
async def test_bubblewrap_is_missed_where_an_organisation_has_a_model(
    here: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    define(here, f"driver: org\nmodel: {model}\n")
    (here / "bin").mkdir()
    monkeypatch.setenv("PATH", str(here / "bin"))
    sandbox.bubblewrap.cache_clear()
    try:
        assert ("bubblewrap_missing" in await codes()) is (model != "offline")
    finally:
        sandbox.bubblewrap.cache_clear()


async def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "port_taken" in await codes(port=taken.getsockname()[1])


async def test_a_data_directory_in_use(here: Path) -> None:
    (here / ".parley").mkdir()
    held = lock(here / ".parley" / LOCK)
    assert "data_dir_in_use" in await codes()
    os.close(held)
    assert "data_dir_in_use" not in await codes()


async def test_little_room_a_large_store_and_a_network(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / ".parley").mkdir()
    (here / ".parley" / "parley.db").write_bytes(b"x")
    monkeypatch.setattr(diagnostics, "LITTLE_DISK", 1 << 62)
    monkeypatch.setattr(diagnostics, "BIG_STORE", 0)
    monkeypatch.setattr(diagnostics, "_NETWORK_FILESYSTEMS", (diagnostics.filesystem_of(here),))
    assert {"disk_full", "keeps_for_ever", "sqlite_on_network"} <= await codes()
    assert "keeps_for_ever" not in await codes(keep_days=30)


async def test_few_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        assert "few_files" in await codes()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_an_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.setattr(diagnostics.extras, "find_spec", lambda name: None)
    assert "extra_missing" in {
        one.code
        for one in diagnostics.local_findings(load(redis_url="redis://x/0"), diagnostics.read_definitions(load()))
    }


async def test_a_database_that_is_not_up_to_date(postgres: str, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from parley.cli import diagnostics

    given: dict[str, object] = {"store": "postgres", "postgres_url": database}
    assert not {"migrations_pending", "clock_skew", "postgres_too_old"} & await codes(**given)
    behind = postgres
    assert "migrations_pending" in await codes(**{**given, "postgres_url": behind})
    monkeypatch.setattr(diagnostics, "now_ms", lambda: 0)
    monkeypatch.setattr(diagnostics, "OLDEST_POSTGRES", 99)
    assert "few_connections" not in await codes(**given)
    assert {"clock_skew", "postgres_too_old", "few_connections"} <= await codes(**given, workers=20)


async def test_the_password_of_a_database_is_not_shown() -> None:
    settings = load(store="postgres", postgres_url=f"postgresql://u:s3cret@{DEAD}/x")
    assert "s3cret" not in str(await diagnose(settings))


def test_the_exit_code_and_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_PORT", "0")
    assert run_doctor(None, None, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["findings"][0]["code"] == "no_agents"
    monkeypatch.setenv("PARLEY_PORT", "nonsense")
    assert run_doctor(None, None, as_json=False) == 1
    assert "settings_wrong" in capsys.readouterr().out


def test_every_code_is_on_the_page() -> None:
    source = "".join(
        Path(one).read_text() for one in (diagnostics.__file__, diagnostics.__file__.replace("checks", "probes"))
    )
    said = set(re.findall(r'(?:error|warning|note)\(\s*"([a-z_]+)"', source)) | {"settings_wrong"}
    assert said == set(re.findall(r"^\| `([a-z_]+)` \|", DOCS.read_text(), re.MULTILINE))
    assert len(said) > 20


async def test_data_that_others_can_read(here: Path) -> None:
    data = here / ".parley"
    data.mkdir(mode=0o700)
    for name in ("parley.db", "secret.key"):
        (data / name).touch(mode=0o600)
    assert "readable_by_others" not in await codes()
    (data / "secret.key").chmod(0o640)
    data.chmod(0o755)
    found = [one.message for one in await diagnose(load(port=0)) if one.code == "readable_by_others"]
    assert [message.split()[0] for message in found] == [str(load().data_dir), str(load().data_dir / "secret.key")]
