import json
from pathlib import Path

import pytest

from parley import telemetry
from parley.app import signatures
from parley.cli.operate import print_config
from parley.clock import now_ms
from parley.errors import ConfigurationError, SignatureRefused
from parley.security.signatures import DEVELOPMENT_KEYS, claims_for, sign
from parley.settings import Settings, load, origins
from parley.stores.memory import MemoryStore


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_nearest_word_wins_and_its_origin_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("parley.toml").write_text('port = 1\nhost = "0.0.0.0"\nlog_level = "debug"\n')
    monkeypatch.setenv("PARLEY_PORT", "2")
    monkeypatch.setenv("PARLEY_LOG_LEVEL", "error")
    settings = load(port=3, host=None)
    assert (settings.port, settings.log_level, settings.host) == (3, "error", "0.0.0.0")
    came_from = origins(settings)
    assert came_from["log_level"] == "environment"
    assert came_from["host"] == "parley.toml"
    assert came_from["store"] == "default"


def test_a_value_set_to_its_default_is_still_set() -> None:
    Path("parley.toml").write_text("port = 8200\n")
    assert origins(load())["port"] == "parley.toml"


@pytest.mark.parametrize(
    ("text", "word"),
    [("port = 'x'", "port"), ("port = 99999", "port"), ("nonsense = 1", "nonsense"), ("port = ", "parley.toml")],
)
def test_a_wrong_setting_is_named(text: str, word: str) -> None:
    Path("parley.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=word):
        load()


def test_every_setting_is_described_and_documented() -> None:
    page = (Path(__file__).parent.parent / "docs" / "settings.md").read_text()
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert f"`{name}`" in page, name


def test_a_list_of_agents_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_AGENTS", json.dumps(["a.py", "b.py"]))
    assert load().agents == ["a.py", "b.py"]


def test_tables_of_agents_are_no_settings() -> None:
    Path("parley.toml").write_text('port = 5\n[[agent]]\nslug = "a"\n[agent.limits]\nmax_queued = 1\n')
    assert load().port == 5
    assert "agent" not in origins(load())


def test_keys_come_from_the_file_or_the_environment_and_are_shown_to_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("parley.toml").write_text('[runtime_keys]\nruntime-v1 = "old words"\nruntime-v2 = "new words"\n')
    keys = load().runtime_keys
    assert {id_: secret.get_secret_value() for id_, secret in keys.items()} == {
        "runtime-v1": "old words",
        "runtime-v2": "new words",
    }
    print_config(as_json=True)
    shown = capsys.readouterr().out
    assert json.loads(shown)["runtime_keys"]["value"].keys() == {"runtime-v1", "runtime-v2"}
    assert "words" not in shown
    monkeypatch.setenv("PARLEY_RUNTIME_KEYS", json.dumps({"a": "other"}))
    assert load().runtime_keys["a"].get_secret_value() == "other"


def test_an_empty_key_is_refused() -> None:
    Path("parley.toml").write_text('[runtime_keys]\nruntime-v1 = ""\n')
    with pytest.raises(ConfigurationError, match=r"runtime_keys\.runtime-v1"):
        load()


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ({}, ["dev-runtime-signature-secret"]),
        ({"auth": "required"}, []),
        ({"auth": "none"}, []),
        ({"runtime_keys": {"k": "mine"}}, ["mine"]),
        ({"runtime_keys": {"k": "mine"}, "auth": "required"}, ["mine"]),
    ],
)
def test_the_development_secret_holds_on_this_machine_while_no_other_is_set(
    given: dict[str, object], held: list[str]
) -> None:
    checks = signatures(load(**given), MemoryStore())

    def holds(secret: str) -> bool:
        try:
            checks.check(sign(secret, claims_for(now_ms())))
        except SignatureRefused:
            return False
        return True

    assert [secret for secret in ("dev-runtime-signature-secret", "mine", "") if holds(secret)] == held


def test_a_secret_that_everybody_knows_is_warned_of() -> None:
    told: list[str] = []
    detach = telemetry.attach(lambda name, _: told.append(name))
    signatures(load(auth="required", runtime_keys=DEVELOPMENT_KEYS), MemoryStore())
    detach()
    assert told == ["signatures.development"]
