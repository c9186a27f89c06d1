"""Workflows as files."""

from pathlib import Path

import pytest

from parley.definitions.loader import LoadedDefinitions, Sources
from parley.drivers.workflow import WorkflowDriver
from parley.orchestrations.rules.plan import Rules

ROOT = Path(__file__).parent.parent.parent


def reading(folder: Path, text: str) -> LoadedDefinitions:
    (folder / "report.yaml").write_text(text)
    return LoadedDefinitions(Sources((str(folder / "report.yaml"),)))


def test_the_definition_in_the_page_is_complete(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "orchestrations.md").read_text().split("```yaml\n")[1].split("```")[0]
    found = reading(tmp_path, text)
    found.check()
    (driver,) = found.drivers
    assert isinstance(driver, WorkflowDriver)
    assert [step.title for step in driver.steps] == ["fetch", "chart", "Write the report"]
    assert driver.rules == Rules(3, 120_000, True, 2, 2000)
    assert driver == reading(tmp_path, text).drivers[0]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("[{id: a, agent: x, depends_on: [b]}]", "depends on b, which is not a step of the plan"),
        ("[{id: a, agent: report}]", "cannot be a step of itself"),
        ("[{id: a}]", "agent: is missing"),
        ("[{id: a, agent: x, input: '{{steps.b.output}}'}]", "so it must depend on it"),
        ("[{id: a, agnet: x}]", "did you mean agent?"),
        ("[]", "1 to 200 steps"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, steps: str, message: str) -> None:
    found = reading(tmp_path, f"workflow:\n  steps: {steps}\n")
    assert found.drivers == []
    assert any(message in fault.message and ":2:" in fault.message for fault in found.faults), found.faults
