"""The pages say what the code does."""

import re
from pathlib import Path

import pytest

import parley.client
import parley.faces.a2a.faults
from parley.core.events import EVENT_TYPES
from parley.core.policy import REASON_CODES
from parley.errors import ParleyError

ROOT = Path(__file__).parent.parent


def codes(kind: type[ParleyError]) -> set[str]:
    return {kind.code}.union(*(codes(child) for child in kind.__subclasses__()))


def test_every_error_code_is_documented() -> None:
    assert parley.client
    assert parley.faces.a2a.faults
    page = (ROOT / "docs" / "errors.md").read_text()
    missing = {code for code in codes(ParleyError) if f"`{code}`" not in page}
    assert not missing


def test_every_event_is_documented() -> None:
    page = (ROOT / "docs" / "log.md").read_text()
    assert [name for name in EVENT_TYPES if f"`{name}`" not in page] == []


def test_every_reason_of_a_tool_is_documented() -> None:
    page = (ROOT / "docs" / "tools.md").read_text()
    assert [code for code in REASON_CODES if f"`{code}`" not in page] == []


@pytest.mark.parametrize("page", ["README.md", "docs/agents.md", "docs/nodekit.md", "docs/telemetry.md"])
def test_the_agents_in_the_pages_work(page: str) -> None:
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert snippets
    for snippet in snippets:
        exec(compile(snippet, page, "exec"), {})


def test_every_link_leads_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
