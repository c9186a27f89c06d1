"""The embedded kernel: assigns a message to a role, and runs its workflow until it ends, asks or fails."""

from collections.abc import AsyncGenerator, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.orgkernel.classifier import RoleAssignment, assign
from parley.orgkernel.definitions import Level, Organisation, Role, TriggerMetrics, Workflow, WorkflowNode
from parley.orgkernel.graph import Outcome, agreed, failure_reason, next_node, step_number, steps
from parley.orgkernel.names import times
from parley.orgkernel.pace import Evidence, given_up, guidance, level_of, raised, shown
from parley.orgkernel.salute import (
    SaluteActivity,
    SaluteEnvironment,
    SaluteLocation,
    SaluteReport,
    SaluteStatus,
    SaluteTime,
    SaluteUnit,
    health,
)
from parley.orgkernel.salute import State as Condition
from parley.orgkernel.steps import (
    MAX_KEPT,
    Do,
    Exists,
    GuidanceAsked,
    Happening,
    NodeResult,
    OrgTask,
    Proposal,
    Shown,
    Work,
    WorkflowEnded,
    WorkflowFinished,
    WorkflowState,
    WorkflowStep,
    kept_guidance,
    shortened,
)

__all__ = ["Kernel"]

MAX_ROUNDS = 3
"""Number of answers in a row that may bring no progress. The next question is an emergency."""
MAX_TURNS = 200
"""Maximum number of turns of a workflow, whatever its graph looks like."""


class Kernel:
    """Runs the workflows of an organisation with tools that its host provides."""

    def __init__(
        self,
        organisation: Organisation | None,
        do: Do,
        exists: Exists,
        model: str = "",
        clock: Clock = now_ms,
        shown: Shown = str,
    ) -> None:
        self._organisation = organisation
        self._do = do
        self._exists = exists
        self._model = model
        self._clock = clock
        self._shown = shown

    def begin(self, task: OrgTask) -> WorkflowState:
        """Assign a task to a role, and return the state in which its workflow begins."""
        found = assign(self._organisation, task.text) if self._organisation else RoleAssignment("conversational")
        start = found.workflow.graph.start if found.workflow else ""
        return WorkflowState(
            found.domain,
            found.role.id if found.role else "",
            found.workflow.id if found.workflow else "",
            start,
            started=self._clock(),
        )

    def answered(self, state: WorkflowState, text: str) -> WorkflowState:
        """Continue after a question with the client's answer. Guidance resets the number of attempts."""
        if state.proposed:
            return _decided(state, text)
        if state.confirming and agreed(text):
            return replace(state, node=state.back, confirming=False, verdict="yes", attempts={}, level="primary")
        return replace(
            state,
            node=state.back or state.node,
            confirming=False,
            verdict="no" if state.confirming else "",
            attempts={},
            failures=0,
            turns_since_progress=0,
            rounds=state.rounds + (not state.confirming),
            guidance=(*state.guidance, kept_guidance(text))[-3:],
            level="primary",
        )

    async def run(self, task: OrgTask, state: WorkflowState) -> AsyncGenerator[Happening, None]:
        """Run a workflow from a state, and yield what happens."""
        role, workflow = self._assigned(state, task)
        if role is None or workflow is None:
            yield await self._passed_through(task, state)
            return
        walk = _Walk(self, task, role, workflow, state)
        async for happening in walk.happenings():
            yield happening

    def _assigned(self, state: WorkflowState, task: OrgTask) -> tuple[Role | None, Workflow | None]:
        """Return the role and workflow of the state. If the organisation no longer has one of them, assign again."""
        if self._organisation is None or not state.role:
            return None, None
        role = self._organisation.role(state.role)
        workflow = self._organisation.workflow(state.plan)
        if role is not None and workflow is not None:
            return role, workflow
        found = assign(self._organisation, task.text)
        return role or found.role, found.workflow

    def stopped(self, task: OrgTask, state: WorkflowState, reason: str) -> WorkflowEnded:
        """Return the end of work that was interrupted from outside, with its results so far."""
        role, workflow = self._assigned(state, task)
        if role is None or workflow is None:
            return self._unanswered(task, state, reason)
        return _Walk(self, task, role, workflow, state).ended(reason)

    async def _passed_through(self, task: OrgTask, state: WorkflowState) -> WorkflowFinished | WorkflowEnded:
        """Answer a message without a role: there is no workflow and no report, only the model's answer."""
        node = WorkflowNode("answer", "task", "Answer the message")
        result = await self._do(Work(node, task.text, task.folder, guidance=tuple(map(task.in_full, state.guidance))))
        state = replace(state, files=_merged(state.files, result.files))
        return self._unanswered(task, state, result.reason) if result.reason else WorkflowFinished(result.text, state)

    def _unanswered(self, task: OrgTask, state: WorkflowState, reason: str) -> WorkflowEnded:
        files = tuple(self._shown(path) for path in state.files)
        report = SaluteReport(
            activity=SaluteActivity(shortened(task.text)), location=SaluteLocation(files_modified=files)
        )
        return WorkflowEnded(given_up(report, None, None, Evidence(reason=reason, accomplished=())), state, None)

    async def done(self, work: Work) -> NodeResult:
        """Do the work of one step, and return its result."""
        return await self._do(work)

    def failure_reason(self, node: WorkflowNode, result: NodeResult) -> str:
        return failure_reason(node, result.text, result.exit_code, result.reason, self._exists)

    def for_client(self, report: SaluteReport) -> SaluteReport:
        """Return the report with paths for clients: only operators see where files are on this machine."""
        files = tuple(self._shown(path) for path in report.location.files_modified)
        return replace(report, location=SaluteLocation(files_modified=files))

    def reported(self, walk: "_Walk", condition: Condition | None = None, tool: str = "") -> SaluteReport:
        state, role, now = walk.state, walk.role, self._clock()
        organisation = self._organisation.id if self._organisation else ""
        elapsed = (now - state.started) / 1000
        return SaluteReport(
            status=SaluteStatus(
                condition or _CONDITIONS[state.level],
                walk.progress(condition),
                state.level,
                health(state.level, state.failures),
            ),
            activity=SaluteActivity(
                shortened(walk.task.text),
                state.domain,
                walk.workflow.name,
                walk.step(condition),
                len(steps(walk.workflow)),
                tool,
                state.attempts.get(state.node, 0),
            ),
            location=SaluteLocation(str(walk.task.folder), state.files),
            unit=SaluteUnit(role.id, role.name, reports_to=role.reports_to, organization=organisation),
            time=SaluteTime(_stamp(now), _stamp(state.started), elapsed, state.turns, state.turns_since_progress),
            environment=SaluteEnvironment(
                self._model, tool_failures_consecutive=state.failures, tool_failures_total=state.failures_total
            ),
        )


def _decided(state: WorkflowState, text: str) -> WorkflowState:
    """Apply the client's answer to a proposal: a plain yes approves what was shown, anything else is guidance."""
    answered = replace(state, node=state.back or state.node, proposed="", attempts={}, level="primary")
    if agreed(text):
        return replace(answered, approved=state.proposed)
    return replace(answered, declined=True, guidance=(*state.guidance, kept_guidance(text))[-3:])


_CONDITIONS: dict[Level, Condition] = {
    "primary": "active", "alternate": "error_recovery", "contingent": "escalating", "emergency": "aborted",
}  # fmt: skip


class _Walk:
    """One execution of a workflow graph."""

    def __init__(self, kernel: Kernel, task: OrgTask, role: Role, workflow: Workflow, state: WorkflowState) -> None:
        self._kernel = kernel
        self.task = task
        self.role = role
        self.workflow = workflow
        self.state = state if state.node in workflow.graph.nodes else replace(state, node=workflow.graph.start)
        self._last = NodeResult()

    def progress(self, condition: Condition | None) -> float:
        names = steps(self.workflow)
        if condition == "complete" or not names:
            return float(condition == "complete")
        return len([name for name in names if name in self.state.done]) / len(names)

    def step(self, condition: Condition | None) -> int:
        """Return the highest step number so far."""
        names = steps(self.workflow)
        if condition == "complete":
            return len(names)
        now = step_number(self.workflow, self.state.node) or step_number(self.workflow, self.state.back)
        # When an earlier step is repeated, the number stays at the highest step reached: it never decreases.
        self.state = replace(self.state, reached=max(now, self.state.reached))
        return self.state.reached

    async def happenings(self) -> AsyncGenerator[Happening, None]:
        while True:
            node = self.workflow.graph.nodes[self.state.node]
            if node.type == "exit":
                yield self._finished(node)
                return
            if node.type in ("task", "decision") or node.type == "checkpoint":
                yield self._step(node)
            end = await self._passed(node)
            if end is not None:
                yield end
                return

    def _step(self, node: WorkflowNode) -> WorkflowStep:
        report = self._kernel.reported(self, tool=_tool(node))
        due = self._due(report)
        return WorkflowStep(shown(report, self.workflow, self.role, doing=node.name).text, self.state, report, due)

    def _due(self, report: SaluteReport) -> bool:
        """Tell whether the role reports now: at its interval, and at once when its level or state has changed."""
        stands, since = f"{report.status.pace_level}/{report.status.state}", self.state.turns - self.state.saluted
        if stands == self.state.salute and since < self.role.salute_interval:
            return False
        self.state = replace(self.state, salute=stands, saluted=self.state.turns)
        return True

    async def _passed(self, node: WorkflowNode) -> GuidanceAsked | WorkflowEnded | None:
        """Do the work of a node and move to the next one. Returns the output if the turn ends here."""
        if self.state.turns >= MAX_TURNS:
            return self.ended(f"After {MAX_TURNS} steps there is no end in sight.")
        match node.type:
            case "escalate":
                return self._escalated(node)
            case "task" | "decision":
                return await self._worked(node)
            case "checkpoint":
                return self._confirmed(node)
            case _:
                return self._moved(node, "pass")

    async def _worked(self, node: WorkflowNode) -> GuidanceAsked | WorkflowEnded | None:
        if self._verdict(node) == "yes":
            return self._moved(node, "pass")
        if self.state.declined:
            self.state = replace(self.state, declined=False)
            return self._reworked(node)
        if 0 < node.max_retries < self.state.attempts.get(node.id, 0):
            self.state = replace(self.state, back=node.id)
            return self._moved(node, "exhausted")
        result = self._last if _only_looks(node) else await self._kernel.done(self._work(node))
        if result.proposal is not None:
            return self._asked_to_approve(node, result.proposal)
        self._last = result
        why = "" if result.skipped else self._kernel.failure_reason(node, result)
        self.state = self._counted(node, result, why)
        if result.hopeless:
            return self.ended(why or result.reason)
        if why and node.type == "task":
            return self._failed(node, why)
        if node.verify.type == "manual" and not why:
            return self._asked_to_confirm(node)
        return self._moved(node, "fail" if why else "pass")

    def _work(self, node: WorkflowNode) -> Work:
        state = self.state
        return Work(
            node,
            self.task.text,
            self.task.folder,
            self.role,
            self.workflow,
            tuple(map(self.task.in_full, state.guidance)),
            state.said,
            state.failed,
            alternative=bool(state.attempts.get(node.id)) or state.level == "alternate",
            modelled=state.modelled,
            approved=state.approved,
        )

    def _counted(self, node: WorkflowNode, result: NodeResult, why: str) -> WorkflowState:
        state = self.state
        state = replace(
            state,
            turns=state.turns + 1,
            turns_since_progress=state.turns_since_progress + 1,
            attempts={**state.attempts, node.id: state.attempts.get(node.id, 0) + 1},
            files=_merged(state.files, result.files),
            modelled=state.modelled or result.modelled,
        )
        if why and node.type == "task":
            failed = (*state.failed, f"{node.name}: {shortened(why, 160)}")[-MAX_KEPT:]
            return replace(
                state, failures=state.failures + 1, failures_total=state.failures_total + 1, failed=failed, back=node.id
            )
        if why:
            return state.noted(node.id, result.text)
        progress = {} if node.id in state.done else {"turns_since_progress": 0, "rounds": 0}
        done = _merged(state.done, (node.id,))
        passed_over = _merged(state.passed_over, (node.id,) if result.skipped else ())
        return replace(
            state.noted(node.id, result.text),
            failures=0,
            level="primary",
            done=done,
            passed_over=passed_over,
            back="",
            **progress,
        )

    def _failed(self, node: WorkflowNode, why: str) -> GuidanceAsked | WorkflowEnded | None:
        level, cause = level_of(self.role, self._metrics())
        self.state = replace(self.state, level=level)
        if level == "emergency":
            return self.ended(f"{node.name}: {why} ({cause})")
        if level == "contingent":
            return self._stuck(f"{node.name} did not succeed ({cause})")
        if self.state.attempts.get(node.id, 0) <= node.max_retries:
            return self._retried(node)
        return self._moved(node, "exhausted" if node.max_retries else "fail")

    def _retried(self, node: WorkflowNode) -> None:
        """Retry a node: follow its retry edge, or repeat it if there is none."""
        again = next_node(self.workflow.graph, node.id, "retry") or node.id
        self.state = replace(self.state, node=again)

    def _moved(self, node: WorkflowNode, outcome: Outcome) -> GuidanceAsked | WorkflowEnded | None:
        found = next_node(self.workflow.graph, node.id, outcome)
        if found is None and outcome == "pass":
            return self.ended(f"The workflow does not say what follows {node.name}.")
        if found is None:
            return self._stuck(f"{node.name} did not succeed")
        self.state = replace(self.state, node=found)
        return None

    def _escalated(self, node: WorkflowNode) -> GuidanceAsked | WorkflowEnded | None:
        reason = node.reason or node.name
        match node.pace_level:
            case "emergency":
                return self.ended(reason)
            case "contingent":
                return self._stuck(reason)
            case level:
                self.state = replace(self.state, level=level)
                return self._moved(node, "pass")

    def _confirmed(self, node: WorkflowNode) -> GuidanceAsked | WorkflowEnded | None:
        if node.verify.type == "manual":
            match self._verdict(node):
                case "":
                    return self._asked_to_confirm(node)
                case "no":
                    return self._reworked(node)
                case "yes":
                    pass
        self.state = replace(self.state, done=_merged(self.state.done, (node.id,)), back="")
        return self._moved(node, "pass")

    def _reworked(self, node: WorkflowNode) -> None:
        """Repeat work that the client did not confirm: at the node that the graph names, else the last work."""
        graph = self.workflow.graph
        last = next((name for name in reversed(self.state.done) if graph.nodes[name].type == "task"), graph.start)
        said = [edge.to for edge in graph.edges if edge.start == node.id and edge.condition == "on_fail"]
        self.state = replace(self.state, node=said[0] if said else last, back="")

    def _verdict(self, node: WorkflowNode) -> Literal["", "yes", "no"]:
        """Return the client's answer to this node, and clear it."""
        found = self.state.verdict if self.state.back == node.id else ""
        done = _merged(self.state.done, (node.id,)) if found == "yes" else self.state.done
        if found:
            self.state = replace(self.state, verdict="", back="", done=done)
        return found

    def _asked_to_confirm(self, node: WorkflowNode) -> GuidanceAsked:
        self.state = replace(self.state, confirming=True, back=node.id)
        return self._asked(f"{node.name}: please confirm, or say what is to be changed")

    def _asked_to_approve(self, node: WorkflowNode, proposal: Proposal) -> GuidanceAsked:
        self.state = replace(self.state, proposed=proposal.digest, back=node.id)
        asked = self._asked(f"{node.name} runs code that a model wrote. Answer yes to run it, or say what to change.")
        return replace(asked, question=replace(asked.question, runs=proposal.text))

    def _stuck(self, reason: str) -> GuidanceAsked | WorkflowEnded:
        """Ask for guidance; or fail, if guidance has brought no progress several times in a row."""
        if self.state.rounds >= MAX_ROUNDS:
            return self.ended(f"{reason}; guidance was given {times(self.state.rounds)} without progress")
        return self._asked(reason)

    def _asked(self, reason: str) -> GuidanceAsked:
        back = self.state.back or self.workflow.graph.start
        self.state = replace(self.state, level=raised(self.state.level, "contingent"), back=back, salute="")
        report = self._kernel.reported(self, "waiting" if self.state.confirming or self.state.proposed else None)
        shown = self._kernel.for_client(report)
        return GuidanceAsked(guidance(shown, self.workflow, self.role, self._evidence(reason)), self.state, report)

    def ended(self, reason: str) -> WorkflowEnded:
        self.state = replace(self.state, level="emergency")
        report = self._kernel.reported(self)
        shown = self._kernel.for_client(report)
        return WorkflowEnded(given_up(shown, self.workflow, self.role, self._evidence(reason)), self.state, report)

    def _finished(self, node: WorkflowNode) -> WorkflowFinished:
        self.state = replace(self.state, level="primary")
        told = (f"{node.name}.", _named("Verified", self._verified()), _named("Passed over", self._passed_over()))
        context = " ".join(one for one in told if one)
        last = self.state.said.get(self.state.done[-1], "") if self.state.done else ""
        return WorkflowFinished(
            self._last.text.strip() or last or context, self.state, context, self._kernel.reported(self, "complete")
        )

    def _metrics(self) -> TriggerMetrics:
        state = self.state
        return TriggerMetrics(
            state.failures,
            state.failures_total,
            turns_without_progress=state.turns_since_progress,
            max_turns_without_progress=self.role.patience,
        )

    def _evidence(self, reason: str) -> Evidence:
        nodes = self.workflow.graph.nodes
        brought = tuple(
            f"{nodes[name].name}: {said}"
            for name, said in self.state.said.items()
            if said and name in nodes and name not in self.state.passed_over
        )
        return Evidence(self._tried(), self.state.failed, brought, reason, self._verified())

    def _verified(self) -> tuple[str, ...]:
        return self._names(name for name in self.state.done if name not in self.state.passed_over)

    def _passed_over(self) -> tuple[str, ...]:
        return self._names(self.state.passed_over)

    def _tried(self) -> tuple[str, ...]:
        """Return the nodes that succeeded, then the nodes that did not, with the number of attempts since the client's
        last message."""
        nodes, done = self.workflow.graph.nodes, self.state.done
        attempts = {name: many for name, many in self.state.attempts.items() if name in nodes and name not in done}
        return (*self._verified(), *(f"{nodes[name].name} ({times(many)})" for name, many in attempts.items()))

    def _names(self, ids: Iterable[str]) -> tuple[str, ...]:
        nodes = self.workflow.graph.nodes
        return tuple(nodes[name].name for name in ids if name in nodes)


def _named(what: str, names: tuple[str, ...]) -> str:
    return f"{what}: {', '.join(names)}." if names else ""


def _only_looks(node: WorkflowNode) -> bool:
    """Tell whether a node is a decision without work of its own; the result before it decides."""
    return node.type == "decision" and not node.command and not node.action


def _tool(node: WorkflowNode) -> str:
    if node.type == "checkpoint":
        return ""
    return node.tool or (Path(node.command[0]).name.strip("{}") if node.command else "model")


def _merged(before: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*before, *more)))


def _stamp(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
