"""Remote agents as files."""

from pathlib import Path

import pytest

from parley.definitions.loader import LoadedDefinitions, Sources
from parley.drivers.remote import RemoteDriver

ROOT = Path(__file__).parent.parent.parent


def reading(folder: Path, text: str) -> LoadedDefinitions:
    (folder / "painter.yaml").write_text(text)
    return LoadedDefinitions(Sources((str(folder / "painter.yaml"),)))


def test_the_definition_in_the_page_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAINTER_TOKEN", "t0ken")
    page = (ROOT / "docs" / "remote.md").read_text()
    text = page.split("```yaml\n")[1].split("```")[0]
    found = reading(tmp_path, text)
    found.check()
    (driver,) = found.drivers
    assert isinstance(driver, RemoteDriver)
    assert driver.agent.slug == "painter"
    assert driver.agent.rescue == "resume"


def test_what_is_left_out_is_left_to_the_remote(tmp_path: Path) -> None:
    found = reading(tmp_path, "remote:\n  url: https://example.com/painter\n")
    found.check()
    (driver,) = found.drivers
    assert (driver.agent.rescue, driver.agent.replies) == ("resume", "either")
    assert driver == reading(tmp_path, "remote:\n  url: https://example.com/painter\n").drivers[0]
    assert driver != reading(tmp_path, "remote:\n  url: https://example.com/printer\n").drivers[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("url: ftp://example.com", "remote.url: must be an http or https URL"),
        ("url: https://me:pass@example.com", "remote.url: must not contain credentials; use token_from"),
        ("url: https://example.com:x/", "remote.url: is not a valid URL"),
        (
            "url: https://example.com\n  bindings: [SOAP]",
            "remote.bindings[0]: expected JSONRPC, HTTP+JSON or GRPC, got 'SOAP'",
        ),
        ("url: https://example.com\n  timeout_s: 0", "remote.timeout_s: must be more than 0 and at most 86400 seconds"),
        (
            "url: https://example.com\n  token_from: NO_SUCH_TOKEN",
            "remote.token_from: the environment variable NO_SUCH_TOKEN is not set",
        ),
        (
            "url: https://example.com\n  token_from: BAD_TOKEN",
            "remote.token_from: the value of BAD_TOKEN has characters",
        ),
        (
            "url: https://example.com\n  header: X-Key",
            "remote.header: must be the name of a header, and needs token_from",
        ),
        ("url: https://example.com\n  hurry: true", "remote.hurry: unknown field"),
        ("bindings: [JSONRPC]", "remote.url: is missing"),
    ],
)
def test_what_is_wrong_is_told_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, message: str
) -> None:
    monkeypatch.setenv("BAD_TOKEN", "two\nlines")
    (fault,) = reading(tmp_path, f"remote:\n  {options}\n").faults
    assert message in fault.message
    assert "two" not in fault.message


def test_without_the_extra_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.extras.find_spec", lambda name: None)
    (fault,) = reading(tmp_path, "remote:\n  url: https://example.com\n").faults
    assert "parley-a2a[remote]" in fault.message
