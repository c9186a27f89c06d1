"""The page about plans and deliverables says what the code does."""

from pathlib import Path

from tests.faces.actions.page import action_rows, code_rows

PAGE = (Path(__file__).parents[3] / "docs" / "documents.md").read_text().splitlines()


def test_the_table_of_actions_is_the_codes() -> None:
    assert [row for row in action_rows() if row not in PAGE] == []
    shown = [row for row in PAGE if row.startswith(("| `plan`", "| `build`", "| `converse`", "| `tool`", "| `orch"))]
    assert shown == action_rows()


def test_every_code_is_told_with_its_status() -> None:
    assert [row for row in code_rows() if not any(line.startswith(row) for line in PAGE)] == []
