"""The offline model writes documents by a pattern: the same from the same, and of what it is shown."""

from parley.documents.rules import Version, again, draft, merge, rework, title_of
from parley.models.offline import drafted
from parley.runs.rules.content import Parts, text_part


def written(parts: Parts) -> str:
    text = drafted(parts)
    assert text is not None
    assert drafted(parts) == text
    return text


def version(number: int) -> Version:
    return Version(str(number), "d", number, "markdown", "manual_edit", b"{}", 0)  # type: ignore[arg-type]


def test_what_is_no_request_for_a_document_is_left_to_the_model() -> None:
    assert drafted((text_part("hello"),)) is None


def test_a_plan_has_a_goal_steps_and_an_end() -> None:
    plan = written(draft("plan", "Write about tides"))
    assert title_of(plan, "") == "Write about tides"
    assert [line for line in plan.splitlines() if line.startswith("## ")] == ["## Goal", "## Steps", "## Done when"]


def test_a_plan_that_is_refined_keeps_what_is_there() -> None:
    plan = written(draft("plan", "Add the moon", current="# Tides\n\nNote:\n\nThey come."))
    assert plan.startswith("# Tides\n\nNote:\n\nThey come.")
    assert plan.endswith("## Changes\n\n- Add the moon")
    twice = written(draft("plan", "Add the sun", current=plan))
    assert twice.endswith("## Changes\n\n- Add the moon\n- Add the sun")


def test_a_deliverable_has_a_section_for_each_step_of_its_plan() -> None:
    plan = written(draft("plan", "Write about tides"))
    built = written(draft("deliverable", "", plan=plan))
    assert built.startswith("# Write about tides\n")
    assert built.count("\n## ") == 3
    assert written(draft("deliverable", "A poem")) == "# A poem\n\nA poem"


def test_a_merge_has_the_paragraphs_of_all_versions_once() -> None:
    merged = written(merge("plan", [(version(1), "# A\n\none\n\ntwo"), (version(2), "# A\n\nthree")], "Both"))
    assert merged == "# A\n\none\n\ntwo\n\nthree\n\n## Changes\n\n- Both"


def test_a_rerun_says_what_was_asked_in_addition() -> None:
    parts = draft("deliverable", "A poem")
    assert written(again(parts, "Shorter")) == "# A poem\n\nA poem\n\nShorter"
    assert written(rework("deliverable", "Version 1 of it:\n\nkept", None)).startswith("Version 1 of it:\n\nkept")
