"""PACE: which level, what a client is told, and that a question stands until it is answered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from parley.orgkernel.definitions import LEVELS, Doctrine, TriggerMetrics, read_role
from parley.orgkernel.json_structs import ignored
from parley.orgkernel.pace import Evidence, GivenUp, Guidance, Retrying, Working, held, level_of, shown
from parley.orgkernel.salute import SaluteEnvironment, SaluteLocation, SaluteReport, SaluteStatus
from tests.orgkernel.organisations import role
from tests.orgkernel.test_salute import REPORT, WORKFLOW

ROLE = read_role(role("bugfix_specialist", "specialist", ["bugfix"]), "bugfix_specialist", Doctrine(), ignored)


def at(level: str) -> SaluteReport:
    return replace(REPORT, status=SaluteStatus("active", 0.6, level))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("failures", "level"), [(0, "primary"), (2, "primary"), (3, "alternate"), (5, "contingent"), (8, "emergency")]
)
def test_failures_raise_the_level(failures: int, level: str) -> None:
    assert level_of(ROLE, TriggerMetrics(failures=failures))[0] == level


@given(st.integers(0, 30), st.integers(0, 30))
def test_more_failures_never_lower_the_level(one: int, more: int) -> None:
    before, after = (LEVELS.index(level_of(ROLE, TriggerMetrics(failures=n))[0]) for n in (one, one + more))
    assert after >= before


def test_an_error_that_cannot_be_mended_is_an_emergency_at_once() -> None:
    assert level_of(ROLE, TriggerMetrics(unrecoverable_error=True)) == ("emergency", "critical_failure")


def test_each_level_has_its_words() -> None:
    working, retrying = shown(at("primary"), WORKFLOW, ROLE), shown(at("alternate"), WORKFLOW, ROLE)
    assert isinstance(working, Working)
    assert isinstance(retrying, Retrying)
    assert retrying.text == f"{working.text}, retrying with alternative approach"


def test_a_question_says_what_was_tried_what_failed_and_what_would_help() -> None:
    evidence = Evidence(("Reproduce the bug",), ("Implement the fix: no such file",), ("notes.md",), "Stuck")
    report = replace(
        at("contingent"), environment=SaluteEnvironment(tool_failures_consecutive=5, tool_failures_total=6)
    )
    asked = shown(report, WORKFLOW, ROLE, evidence)
    assert isinstance(asked, Guidance)
    for words in ("Stuck", "Reproduce the bug", "no such file", "Say which file is meant", "notes.md", "5 consecutive"):
        assert words in asked.text


def test_what_failed_again_and_again_is_told_once() -> None:
    evidence = Evidence(failed=("Fix: no such file", "Test: red", "Fix: no such file"))
    asked = shown(at("contingent"), WORKFLOW, ROLE, evidence)
    assert isinstance(asked, Guidance)
    assert asked.failed == ("Fix: no such file (2 times)", "Test: red")


def test_giving_up_delivers_what_there_is() -> None:
    report = replace(at("emergency"), location=SaluteLocation(files_modified=("/work/app.py",)))
    ended = shown(report, WORKFLOW, ROLE, Evidence(("Reproduce the bug",), reason="The disk is full"))
    assert isinstance(ended, GivenUp)
    assert ended.partial == ("/work/app.py",)
    assert (ended.step, ended.total_steps, ended.workflow) == (3, 5, "Bug Fix Workflow")
    for words in ("Task Failure Report", "The disk is full", "Let another have a look", "Ask co", "60% complete"):
        assert words in ended.text


@given(st.lists(st.sampled_from(LEVELS), max_size=12))
def test_a_question_stands_until_it_is_answered_and_an_end_for_ever(levels: list[str]) -> None:
    before = None
    for level in levels:
        now = held(before, shown(at(level), WORKFLOW, ROLE))
        if isinstance(before, GivenUp):
            assert now is before
        if isinstance(before, Guidance):
            assert isinstance(now, Guidance | GivenUp)
        before = now
