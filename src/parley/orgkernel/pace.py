"""PACE levels: what the client sees of a role's failures, when the client is asked, and when the work fails."""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from parley.orgkernel.definitions import LEVELS, Level, Pace, Role, TriggerMetrics, Workflow, fired
from parley.orgkernel.names import times, title_name
from parley.orgkernel.salute import SaluteReport, percent, status_text

__all__ = ["held", "shown"]

RETRYING = "retrying with alternative approach"
_MAX_TRIED = 10
_MAX_PARTIAL = 2000


class Evidence(Struct, frozen=True):
    """Facts about the work that its report does not contain; they come from the driver that ran it."""

    tried: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    """Partial results: names of files, or text."""
    reason: str = ""
    accomplished: tuple[str, ...] | None = None
    """Completed parts of the work; None if only the attempts are known."""


class Working(Struct, frozen=True):
    text: str


class Retrying(Struct, frozen=True):
    text: str


class Guidance(Struct, frozen=True, omit_defaults=True):
    """The role asks for operational guidance; it has not given up."""

    task: str
    where: str
    tried: tuple[str, ...]
    failed: tuple[str, ...]
    helps: str
    partial: tuple[str, ...]
    runs: str = ""
    """Code and command that run if the client approves."""

    @property
    def text(self) -> str:
        if self.runs:
            return f"Approval is needed: {self.where}\nTask: {self.task}\n{self.runs}"
        return _sections(
            (f"Guidance is needed: {self.where}" if self.where else "Guidance is needed.", ()),
            ("Task", (self.task,)),
            ("What was tried", self.tried),
            ("What failed", self.failed),
            ("What would help", (self.helps,)),
            ("Results so far", self.partial),
        )


class GivenUp(Struct, frozen=True):
    """The work has failed; completed results are still delivered."""

    task: str
    reason: str
    workflow: str
    step: int
    total_steps: int
    progress: float
    accomplished: tuple[str, ...]
    failed: tuple[str, ...]
    partial: tuple[str, ...]
    suggestions: tuple[str, ...]
    failures: int = 0

    @property
    def text(self) -> str:
        done = f"step {self.step}/{self.total_steps}, {percent(self.progress)}% complete" if self.total_steps else ""
        return _sections(
            ("=== Task Failure Report ===", ()),
            ("Task", (self.task,)),
            ("Reason", (self.reason,)),
            ("Workflow", (", ".join(one for one in (self.workflow, done) if one),)),
            ("Accomplished", self.accomplished),
            ("What failed", self.failed),
            ("Partial results", self.partial),
            ("What another agent or approach might try", self.suggestions),
        )


Shown = Working | Retrying | Guidance | GivenUp
"""A report as the client sees it: the first two are work in progress, the third is a question, the last is the end."""


def level_of(role: Role, metrics: TriggerMetrics) -> tuple[Level, str]:
    """Return the highest level whose trigger fires, and the clause that fired."""
    for pace in reversed(role.pace):
        clause = fired(pace.trigger, metrics)
        if clause is not None:
            return pace.level, clause.written
    return "primary", ""


def raised(one: Level, other: Level) -> Level:
    """Return the higher of two levels."""
    return one if LEVELS.index(one) >= LEVELS.index(other) else other


def shown(
    report: SaluteReport,
    workflow: Workflow | None,
    role: Role | None,
    evidence: Evidence | None = None,
    doing: str = "",
) -> Shown:
    """Translate a report for the client (PACE → A2A in the organisation contract, 001). `doing` names the current step
    if it is known more exactly than by its number."""
    known = evidence or Evidence()
    match report.status.pace_level:
        case "contingent":
            return guidance(report, workflow, role, known)
        case "emergency":
            return given_up(report, workflow, role, known)
        case "alternate":
            return Retrying(f"{status_text(report, workflow, doing)}, {RETRYING}")
        case "primary":
            return Working(status_text(report, workflow, doing))


def held(before: Shown | None, now: Shown) -> Shown:
    """Return the state to show after `before`. A question stays until the client answers or the work ends, even if the
    level that caused it is restored; an end is final."""
    if isinstance(before, GivenUp) or (isinstance(before, Guidance) and not isinstance(now, GivenUp)):
        return before
    return now


# Why: docs/decisions/organisation.md#ask-the-client-at-level-contingent-not-another-role-first
def guidance(report: SaluteReport, workflow: Workflow | None, role: Role | None, evidence: Evidence) -> Guidance:
    """Return the question to the client. If the attempts are not known, the report's current activity is listed as
    tried."""
    helps, doing = _stage(role, "contingent").description, status_text(report, workflow)
    return Guidance(
        report.activity.current_task,
        evidence.reason or doing,
        evidence.tried[-_MAX_TRIED:] or (doing,),
        _failures(report, evidence),
        helps or "More detail about the task, or another way to go about it.",
        _partial(report, evidence),
    )


def given_up(report: SaluteReport, workflow: Workflow | None, role: Role | None, evidence: Evidence) -> GivenUp:
    activity = report.activity
    accomplished = evidence.tried if evidence.accomplished is None else evidence.accomplished
    return GivenUp(
        activity.current_task,
        evidence.reason or "The work cannot go on.",
        workflow.name if workflow else title_name(activity.htn_plan),
        activity.htn_step,
        activity.htn_total_steps,
        report.status.progress,
        accomplished[-_MAX_TRIED:],
        _failures(report, evidence),
        _partial(report, evidence),
        _suggestions(report, role),
        report.environment.tool_failures_total,
    )


def _failures(report: SaluteReport, evidence: Evidence) -> tuple[str, ...]:
    """Return each distinct failure once, with its count."""
    often = Counter(evidence.failed)
    failed = tuple(why if many == 1 else f"{why} ({times(many)})" for why, many in often.items())[-_MAX_TRIED:]
    counted = report.environment
    if not counted.tool_failures_total:
        return failed
    figures = f"Tool failures: {counted.tool_failures_consecutive} consecutive, {counted.tool_failures_total} total"
    return (*failed, figures)


def _partial(report: SaluteReport, evidence: Evidence) -> tuple[str, ...]:
    files = dict.fromkeys((*report.location.files_modified, *evidence.partial))
    return tuple(one[:_MAX_PARTIAL] for one in files)


def _suggestions(report: SaluteReport, role: Role | None) -> tuple[str, ...]:
    stage = _stage(role, "emergency")
    to = stage.escalate_to or report.unit.reports_to
    found = [
        stage.description,
        f"Ask {to}, to whom this role escalates." if to else "",
        "Say more exactly what is wanted, or divide the task.",
    ]
    return tuple(one for one in found if one)


def _stage(role: Role | None, level: Level) -> Pace:
    found = next((pace for pace in role.pace if pace.level == level), None) if role else None
    return found or Pace(level, "", (), "")


def _sections(*sections: tuple[str, Sequence[str]]) -> str:
    (title, _), *others = sections
    blocks = [f"{name}:{_listed(lines)}" for name, lines in others if any(lines)]
    return "\n".join([title, *blocks])


def _listed(lines: Sequence[str]) -> str:
    given = [line for line in lines if line]
    return f" {given[0]}" if len(given) == 1 else "".join(f"\n- {line}" for line in given)
