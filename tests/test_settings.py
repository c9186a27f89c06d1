import json
from pathlib import Path

import pytest

from parley.errors import ConfigurationError
from parley.settings import Settings, load, origins


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
