"""SALUTE reports: written in the contract's schema, read in whatever state they are found."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from parley.orgkernel.definitions import read_workflows
from parley.orgkernel.json_structs import ignored
from parley.orgkernel.names import doing
from parley.orgkernel.salute import (
    ReportFolder,
    SaluteActivity,
    SaluteEnvironment,
    SaluteReport,
    SaluteStatus,
    SaluteUnit,
    read_report,
    status_text,
    write_report,
)
from tests.orgkernel.organisations import BUGFIX

(WORKFLOW,) = read_workflows({"plans": {"bugfix_workflow": BUGFIX}}, ignored)
REPORT = SaluteReport(
    status=SaluteStatus(progress=0.6),
    activity=SaluteActivity("Fix it", "bugfix", "Bug Fix Workflow", 3, 5, "code_execution_tool"),
    unit=SaluteUnit("bugfix_specialist", "Bug Fix Specialist"),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_a_report_has_exactly_the_members_of_the_contract() -> None:
    written = json.loads(write_report(REPORT))
    assert list(written) == [
        "_schema", "_version", "status", "activity", "location", "unit", "time", "environment",
    ]  # fmt: skip
    assert list(written["activity"]) == [
        "current_task", "bst_domain", "htn_plan", "htn_step", "htn_total_steps", "current_tool",
        "iterations_on_current_step",
    ]  # fmt: skip
    assert written["location"] == {
        "working_directory": "", "files_modified": [], "files_read": [], "resources_claimed": [],
    }  # fmt: skip


def test_the_status_says_what_is_done_how_far_by_whom_and_with_what() -> None:
    text = "Bug Fix Workflow: implementing the fix (step 3/5, 60% complete)"
    assert status_text(REPORT, WORKFLOW) == f"{text}, role: Bug Fix Specialist, tool: code_execution_tool"
    assert (
        status_text(replace(REPORT, unit=SaluteUnit(), activity=replace(REPORT.activity, current_tool="")), WORKFLOW)
        == text
    )


def test_a_report_without_a_plan_still_says_something() -> None:
    assert status_text(SaluteReport()) == "Working"
    assert status_text(SaluteReport(activity=SaluteActivity(bst_domain="analysis"))) == "Analysis: working"


@given(st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode()))
def test_no_content_breaks_the_reader(content: bytes) -> None:
    found = read_report(content)
    assert found is None or status_text(found, WORKFLOW)


@given(st.sampled_from(["status", "activity", "unit", "time", "environment", "location"]), values)
def test_a_section_that_is_wrong_is_left_out_and_the_others_are_read(section: str, value: object) -> None:
    written = json.loads(write_report(REPORT))
    found = read_report(json.dumps({**written, section: value}).encode())
    assert found is not None
    if section != "unit":
        assert found.unit == REPORT.unit
    if section != "environment":
        assert found.environment == REPORT.environment


@given(st.integers(0, len(write_report(REPORT)) - 2))
def test_a_half_written_report_is_no_report(cut: int) -> None:
    assert read_report(write_report(REPORT)[:cut]) is None


@given(st.floats(0, 1), st.integers(0, 9), st.sampled_from(["primary", "alternate", "contingent", "emergency"]))
def test_a_report_is_read_as_it_was_written(progress: float, failures: int, level: str) -> None:
    report = replace(
        REPORT,
        status=SaluteStatus("active", progress, level),  # pyright: ignore[reportArgumentType]
        environment=SaluteEnvironment(tool_failures_consecutive=failures),
    )
    assert read_report(write_report(report)) == report


def test_the_newest_report_since_the_task_began_counts_whichever_role_wrote_it(tmp_path: Path) -> None:
    reports = ReportFolder(tmp_path)
    old = reports.write(REPORT)
    os.utime(old, (100, 100))
    assert reports.latest(since=200) is None
    new = reports.write(replace(REPORT, unit=SaluteUnit("co", "Commander")))
    os.utime(new, (300, 300))
    found = reports.latest(since=200)
    assert found is not None
    assert found.report.unit.role_id == "co"
    new.write_text('{"status": {"sta')
    assert reports.latest(since=200) is None
    assert ReportFolder(tmp_path / "nowhere").latest() is None


def test_reports_are_kept_for_an_hour_and_leave_no_pieces_behind(tmp_path: Path) -> None:
    reports = ReportFolder(tmp_path)
    reports.write(replace(REPORT, unit=SaluteUnit("../../evil", "")))
    (archived,) = (tmp_path / "archive").iterdir()
    os.utime(archived, (100, 100))
    moved = archived.rename(archived.with_name("co_20200101_000000.json"))
    reports.write(REPORT)
    assert not moved.exists()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"archive", ".._.._evil_latest.json", "bugfix_specialist_latest.json"}


@pytest.mark.parametrize(
    ("order", "under_way"),
    [
        ("Implement the fix", "implementing the fix"),
        ("Run tests", "running tests"),
        ("Isolate the cause", "isolating the cause"),
        ("Baseline", "baselining"),
        ("Sanity of the image", "Sanity of the image"),
    ],
)
def test_an_order_becomes_what_is_being_done(order: str, under_way: str) -> None:
    assert doing(order) == under_way
