"""Agent-Zeros as files."""

from pathlib import Path

import pytest

from parley.definitions.loader import LoadedDefinitions, Sources
from parley.drivers.agentzero import AgentZeroDriver
from parley.runs.rules.agents import Limits

ROOT = Path(__file__).parent.parent.parent


def reading(folder: Path, text: str) -> LoadedDefinitions:
    (folder / "zero.yaml").write_text(text)
    return LoadedDefinitions(Sources((str(folder / "zero.yaml"),)))


def test_the_definitions_in_the_page_are_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZERO_PASSWORD", "p4ss")
    (tmp_path / "zero.key").write_text("k3y")
    page = (ROOT / "docs" / "agentzero.md").read_text()
    for text in [piece.split("```")[0] for piece in page.split("```yaml\n")[1:]]:
        found = reading(tmp_path, text)
        found.check()
        (driver,) = found.drivers
        assert isinstance(driver, AgentZeroDriver)
        assert (driver.agent.slug, driver.agent.rescue) == ("zero", "resume")


def test_what_is_left_out_is_as_the_contract_has_it(tmp_path: Path) -> None:
    found = reading(tmp_path, "agentzero:\n  url: http://127.0.0.1:5000\nlimits:\n  timeout_s: 60\n")
    found.check()
    (driver,) = found.drivers
    assert driver.agent.limits == Limits(max_concurrent=1, max_queued=10, timeout_s=60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("url: ftp://example.com", "agentzero.url: must be an http or https URL"),
        ("url: https://me:pass@example.com", "agentzero.url: must not contain credentials"),
        ("url: https://example.com\n  poll_s: 0", "agentzero.poll_s: must be more than 0 and at most 86400 seconds"),
        ("url: https://example.com\n  key_from: NO_SUCH_KEY", "agentzero.key_from: NO_SUCH_KEY is empty or not set"),
        ("url: https://example.com\n  key_from: BAD_KEY", "agentzero.key_from: the value of BAD_KEY has characters"),
        ("url: https://example.com\n  key_file: none.key", "agentzero.key_file: the file"),
        (
            "url: https://example.com\n  key_file: a\n  key_from: B",
            "agentzero.key_file: only one of key, key_from and key_file",
        ),
        ("url: https://example.com\n  user: admin", "agentzero.user: user and password_from must be set together"),
        ("url: https://example.com\n  roots: [/a0/../etc]", "agentzero.roots: must list absolute directories"),
        (
            "url: https://example.com\n  lifetime_hours: 0",
            "agentzero.lifetime_hours: must be more than 0 and at most 8760 hours",
        ),
        ("url: https://example.com\n  hurry: true", "agentzero.hurry: unknown field"),
        ("poll_s: 1", "agentzero.url: is missing"),
    ],
)
def test_what_is_wrong_is_told_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, message: str
) -> None:
    monkeypatch.setenv("BAD_KEY", "two\nlines")
    (fault,) = reading(tmp_path, f"agentzero:\n  {options}\n").faults
    assert message in fault.message
    assert "lines" not in fault.message


def test_reports_need_one_task_at_a_time(tmp_path: Path) -> None:
    text = "agentzero:\n  url: https://example.com\n  reports: reports\nlimits:\n  max_concurrent: 2\n"
    (fault,) = reading(tmp_path, text).faults
    assert "max_concurrent must be 1" in fault.message
