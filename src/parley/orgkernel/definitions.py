"""Definition of an organisation: roles, domains and workflows, as in the specification and in shipped files."""

import operator
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Literal, cast

from msgspec import Struct, field
from msgspec.structs import replace

from parley.errors import Invalid
from parley.orgkernel.json_structs import Wrong, is_object, items_of, joined, members_of, shaped
from parley.orgkernel.names import plain_name, title_name

# Trigger expressions of a PACE plan: `metric op number [OR …]`, flags, and multiples of a role's own limit.

Metric = Literal["failures", "failures_total", "context_fill", "turns_without_progress", "unrecoverable_error"]
Op = Literal[">=", "<=", "==", ">", "<"]

_METRICS: dict[str, Metric] = {
    "failures": "failures",
    "consecutive_failures": "failures",
    "consecutive_tool_failures": "failures",
    "tool_failures_consecutive": "failures",
    "failures_total": "failures_total",
    "tool_failures_total": "failures_total",
    "context_fill": "context_fill",
    "context_fill_pct": "context_fill",
    "turns_without_progress": "turns_without_progress",
    "turns_since_progress": "turns_without_progress",
}
_FLAGS: dict[str, tuple[Metric, float]] = {
    "unrecoverable_error": ("unrecoverable_error", 1),
    "critical_failure": ("unrecoverable_error", 1),
    "context_exhausted": ("context_fill", 1),
    "context_overflow": ("context_fill", 1),
}
_UNMEASURED = frozenset(("ontology_empty",))
"""Conditions in shipped role files that this kernel does not measure; they are never true."""
_LIMITS = ("max", "max_turns", "max_turns_without_progress")
_COMPARE: dict[Op, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_OR = re.compile(r"(?<=\s)OR(?=\s)|\|\|", re.IGNORECASE)
_CLAUSE = re.compile(
    r"(?P<metric>[a-z_]+)\s*(?P<op>>=|<=|==|=|>|<)\s*"
    r"(?:(?P<limit>[a-z_]+)\s*(?:\*\s*(?P<times>\d+(?:\.\d+)?))?|(?P<number>\d+(?:\.\d+)?)\s*(?P<percent>%?))",
    re.IGNORECASE,
)


class TriggerMetrics(Struct, frozen=True):
    """Metrics that a trigger can test."""

    failures: int = 0
    failures_total: int = 0
    context_fill: float = 0.0
    turns_without_progress: int = 0
    unrecoverable_error: bool = False
    max_turns_without_progress: int = 12


class Clause(Struct, frozen=True):
    metric: Metric
    op: Op
    number: float
    of_limit: bool = False
    """True if `number` is a multiple of the role's `max_turns_without_progress`."""
    written: str = ""

    def holds(self, metrics: TriggerMetrics) -> bool:
        bound = self.number * metrics.max_turns_without_progress if self.of_limit else self.number
        return _COMPARE[self.op](float(getattr(metrics, self.metric)), bound)


Trigger = tuple[Clause, ...]
"""Fires if one of its clauses is true; never fires if it has none."""


def parse_trigger(text: str) -> Trigger:
    """Parse a trigger. Raises Invalid, which names the clause that cannot be parsed."""
    return tuple(_clause(one.strip()) for one in _OR.split(text.strip())) if text.strip() else ()


def fired(trigger: Trigger, metrics: TriggerMetrics) -> Clause | None:
    """Return the first clause that is true."""
    return next((clause for clause in trigger if clause.holds(metrics)), None)


def _clause(text: str) -> Clause:
    flag = _FLAGS.get(text.lower())
    if flag is not None:
        return Clause(flag[0], ">=", flag[1], written=text)
    if text.lower() in _UNMEASURED:
        return Clause("failures", "<", 0, written=text)
    match = _CLAUSE.fullmatch(text)
    if match is None:
        raise Invalid(f"{text!r} is not a condition; write metric op number, such as failures>=3", field="trigger")
    metric = _METRICS.get(match["metric"].lower())
    if metric is None:
        raise Invalid(f"unknown metric {match['metric']!r}; use one of {', '.join(_METRICS)}", field="trigger")
    op = _OPS[match["op"]]
    if match["limit"] is not None:
        if match["limit"].lower() not in _LIMITS:
            raise Invalid(f"{match['limit']!r} is not a number and not one of {', '.join(_LIMITS)}", field="trigger")
        return Clause(metric, op, float(match["times"] or 1), of_limit=True, written=text)
    number = float(match["number"]) / (100 if match["percent"] else 1)
    return Clause(metric, op, number, written=text)


_OPS: dict[str, Op] = {">=": ">=", "<=": "<=", "==": "==", "=": "==", ">": ">", "<": "<"}


Level = Literal["primary", "alternate", "contingent", "emergency"]
NodeType = Literal["start", "task", "decision", "checkpoint", "escalate", "exit"]
Condition = Literal["on_success", "on_fail", "on_retry", "on_exhaust", "always"]
Check = Literal["output_contains", "output_not_contains", "exit_code_zero", "any_output", "file_exists", "manual"]

LEVELS: tuple[Level, ...] = ("primary", "alternate", "contingent", "emergency")
PASSTHROUGH = "conversational"
"""Domain of messages that match no other domain."""
_AUTHORITY = {"specialist": 1, "executive": 2, "commander": 3}
_TRIGGERS: dict[Level, str] = {
    "primary": "",
    "alternate": "consecutive_tool_failures >= 3",
    "contingent": "consecutive_tool_failures >= 5 OR context_fill > 0.85",
    "emergency": "unrecoverable_error OR turns_without_progress > max*1.5 OR consecutive_tool_failures >= 8",
}
_ALWAYS_EMERGENCY = "consecutive_tool_failures >= 8 OR turns_without_progress > max*1.5"
"""Added to the emergency trigger of each role: work that only fails must end."""


class Mission(Struct, frozen=True):
    objective: str = ""


class Member(Struct, frozen=True):
    role_id: str = ""


class Doctrine(Struct, frozen=True):
    """A role's reporting interval and its limits on attempts. None means the organisation's default."""

    salute_interval_turns: int | None = None
    max_turns_without_progress: int | None = None
    autonomous_retry_limit: int | None = None


class Stage(Struct, frozen=True):
    """One level of a PACE plan."""

    description: str = ""
    action: str = ""
    trigger: str = ""
    escalate_to: str = ""


class Domain(Struct, frozen=True):
    id: str = ""
    name: str = ""
    description: str = ""
    triggers: tuple[str, ...] = ()


class Verify(Struct, frozen=True):
    type: Check = "any_output"
    value: str = ""


class WorkflowNode(Struct, frozen=True):
    """One node of a workflow. The fields from `command` on are additions of this kernel: they define how the work is
    done."""

    id: str = ""
    type: NodeType = "task"
    name: str = ""
    action: str = ""
    tool: str = ""
    tool_hint: str = ""
    verify: Verify = Verify()
    max_retries: int = 0
    reason: str = ""
    pace_level: Level = "contingent"
    command: tuple[str, ...] = ()
    """A program and its arguments. A placeholder is an argument of its own, or the beginning of a path."""
    timeout_s: float = 60.0
    output_file: str = ""
    """File that the tool's output is written to, below the folder of the task."""
    needs_model: bool = False
    """True if the node is skipped when only the offline model is configured."""
    runs_code: bool = True
    """True if the command may run files of the task. Then it needs approval once a model has written such files."""


class WorkflowEdge(Struct, frozen=True):
    start: str = field(default="", name="from")
    to: str = ""
    condition: Condition = "always"


class WorkflowGraph(Struct, frozen=True):
    start: str = ""
    nodes: dict[str, WorkflowNode] = {}
    edges: tuple[WorkflowEdge, ...] = ()


class Workflow(Struct, frozen=True):
    id: str = ""
    name: str = ""
    description: str = ""
    domains: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    trigger_threshold: int = 1
    examples: tuple[str, ...] = ()
    graph: WorkflowGraph = WorkflowGraph()


class Pace(Struct, frozen=True):
    """A PACE level of a role, with its trigger parsed."""

    level: Level
    description: str
    trigger: Trigger
    escalate_to: str


class Role(Struct, frozen=True):
    id: str
    name: str
    authority: int
    reports_to: str
    domains: tuple[str, ...]
    plans: tuple[str, ...]
    tools: tuple[str, ...]
    pace: tuple[Pace, ...]
    doctrine: Doctrine

    @property
    def salute_interval(self) -> int:
        """Number of turns between two reports if nothing changes."""
        return max(1, self.doctrine.salute_interval_turns or 5)

    @property
    def patience(self) -> int:
        """Number of turns without progress that are allowed."""
        return self.doctrine.max_turns_without_progress or 12

    @property
    def retries(self) -> int:
        found = self.doctrine.autonomous_retry_limit
        return 2 if found is None else found


class Organisation(Struct, frozen=True):
    id: str
    name: str
    description: str
    version: str
    objective: str
    roles: tuple[Role, ...]
    domains: tuple[Domain, ...]
    workflows: tuple[Workflow, ...]
    routing: dict[str, tuple[str, ...]] = {}

    def roles_for(self, domain: str) -> list[Role]:
        """Return the roles that can work in a domain, lowest authority first; among equals in the order of the routing
        table."""
        order = self.routing.get(domain, ())
        able = [role for role in self.roles if domain in role.domains]
        return sorted(able, key=lambda role: (role.authority, order.index(role.id) if role.id in order else len(order)))

    def workflows_for(self, domain: str) -> list[Workflow]:
        return [workflow for workflow in self.workflows if domain in workflow.domains]

    def workflow(self, name: str) -> Workflow | None:
        """Find a workflow by its id or its name: reports contain either."""
        return next((one for one in self.workflows if name and name in (one.id, one.name)), None)

    def role(self, id_: str) -> Role | None:
        return next((role for role in self.roles if role.id == id_), None)

    def domain(self, id_: str) -> Domain:
        found = next((one for one in self.domains if one.id == id_), None)
        return found or Domain(id_, plain_name(id_))


class OrganisationFile(Struct, frozen=True):
    """The file `active.json`. Shipped files have `domain_routing` and `defaults` instead of `mission`."""

    version: str = field(default="1.0", name="_version")
    org_id: str = ""
    org_name: str = ""
    description: str = ""
    mission: Mission = Mission()
    hierarchy: dict[str, Member] = {}
    domain_routing: dict[str, tuple[str, ...]] = {}
    defaults: Doctrine = Doctrine()

    @property
    def members(self) -> list[str]:
        return [member.role_id or key for key, member in self.hierarchy.items()]


class _Command(Struct, frozen=True):
    reports_to: str = ""
    authority_level: int | None = None


class _Capabilities(Struct, frozen=True):
    bst_domains: tuple[str, ...] = ()
    htn_plans: tuple[str, ...] = ()
    tools_primary: tuple[str, ...] = ()
    tools_secondary: tuple[str, ...] = ()


class _RoleFile(Struct, frozen=True):
    role_id: str = ""
    role_name: str = ""
    role_type: Literal["specialist", "executive", "commander"] = "specialist"
    chain_of_command: _Command = _Command()
    capabilities: _Capabilities = _Capabilities()
    pace_plan: dict[str, Stage] = {}
    doctrine: Doctrine = Doctrine()


def read_organisation(value: object, wrong: Wrong) -> OrganisationFile:
    found = shaped(OrganisationFile, value, wrong)
    if not found.org_name and not found.org_id:
        wrong("org_name", "is missing")
    if not found.hierarchy:
        wrong("hierarchy", "has no role, so no work can be done; add a role")
    return found


def read_role(value: object, id_: str, defaults: Doctrine, wrong: Wrong) -> Role:
    found = shaped(_RoleFile, value, wrong)
    if found.role_id and found.role_id != id_:
        wrong("role_id", f"is {found.role_id!r}, but the file is named after {id_!r}")
    able, chain = found.capabilities, found.chain_of_command
    return Role(
        id_,
        found.role_name or plain_name(id_),
        chain.authority_level or _AUTHORITY[found.role_type],
        chain.reports_to,
        able.bst_domains,
        able.htn_plans,
        (*able.tools_primary, *able.tools_secondary),
        _pace(found.pace_plan, wrong),
        _doctrine(found.doctrine, defaults),
    )


def _pace(plan: dict[str, Stage], wrong: Wrong) -> tuple[Pace, ...]:
    for name in plan.keys() - set(LEVELS):
        wrong(f"pace_plan.{name}", f"unknown level; use {', '.join(LEVELS)}")
    return tuple(_level(level, plan.get(level, Stage()), wrong) for level in LEVELS)


def _level(level: Level, stage: Stage, wrong: Wrong) -> Pace:
    trigger = _trigger(level, stage.trigger or _TRIGGERS[level], wrong)
    if level == "emergency":
        trigger = (*trigger, *parse_trigger(_ALWAYS_EMERGENCY))
    return Pace(level, stage.description, trigger, stage.escalate_to)


def _trigger(level: Level, text: str, wrong: Wrong) -> Trigger:
    try:
        return parse_trigger(text)
    except Invalid as error:
        wrong(f"pace_plan.{level}.trigger", error.message)
        return parse_trigger(_TRIGGERS[level])


def _doctrine(own: Doctrine, usual: Doctrine) -> Doctrine:
    return Doctrine(
        *(getattr(usual, name) if getattr(own, name) is None else getattr(own, name) for name in own.__struct_fields__)
    )


def read_domains(value: object, wrong: Wrong) -> tuple[Domain, ...]:
    """Read domains from a mapping by id or a list; or from the member `domains` of an object."""
    return tuple(
        Domain(id_, one.name or plain_name(id_), one.description, one.triggers)
        for id_, one in _by_id(_unwrapped(value, "domains"), "domains", Domain, wrong)
    )


def read_workflows(value: object, wrong: Wrong) -> tuple[Workflow, ...]:
    """Read workflows from a library (`{"plans": {…}}`), a mapping by id, a list, or a single workflow."""
    inner = _unwrapped(value, "plans")
    if {"graph", "steps"} & members_of(inner).keys():
        inner = [inner]
    members = _members(inner, "plans", wrong)
    return tuple(_workflow(id_, one, joined("plans", id_), wrong) for id_, one in members)


def _workflow(id_: str, value: object, path: str, wrong: Wrong) -> Workflow:
    found = shaped(Workflow, value, lambda at, why: wrong(joined(path, at), why))
    steps = items_of(members_of(value).get("steps"))
    graph = found.graph
    if not graph.nodes and steps:
        graph = _linear(steps, joined(path, "steps"), wrong)
    nodes = {name: _named(name, node) for name, node in graph.nodes.items()}
    graph = WorkflowGraph(graph.start or _first_start(nodes), nodes, graph.edges)
    return Workflow(
        id_,
        found.name or title_name(id_),
        found.description,
        found.domains,
        found.triggers,
        max(1, found.trigger_threshold),
        found.examples,
        graph,
    )


def _named(id_: str, node: WorkflowNode) -> WorkflowNode:
    return replace(node, id=id_, name=node.name or plain_name(id_))


def _first_start(nodes: dict[str, WorkflowNode]) -> str:
    return next((name for name, node in nodes.items() if node.type == "start"), "start" if "start" in nodes else "")


def _linear(steps: list[object], path: str, wrong: Wrong) -> WorkflowGraph:
    """Convert a list of steps to a graph without branches that asks for guidance when a step fails."""
    found = [
        WorkflowNode(name=step) if isinstance(step, str) else shaped(WorkflowNode, step, wrong, f"{path}[{place}]")
        for place, step in enumerate(steps)
    ]
    names = [f"step_{place}" for place in range(1, len(found) + 1)]
    chain = ["start", *names, "done"]
    nodes = {"start": WorkflowNode(type="start", name="Begin"), **dict(zip(names, found, strict=True))}
    nodes["stuck"] = WorkflowNode(type="escalate", name="Ask for guidance", reason="A step could not be completed")
    nodes["done"] = WorkflowNode(type="exit", name="Done")
    ahead = [WorkflowEdge(one, two, "on_success") for one, two in pairwise(chain)]
    return WorkflowGraph("start", nodes, (*ahead, *(WorkflowEdge(name, "stuck", "on_exhaust") for name in names)))


def _unwrapped(value: object, member: str) -> object:
    return members_of(value).get(member, value)


def _members(value: object, what: str, wrong: Wrong) -> list[tuple[str, object]]:
    """Return the members with their ids: the keys of a mapping, or the member `id` of each item of a list."""
    if is_object(value):
        return [(key, one) for key, one in members_of(value).items() if not key.startswith("_")]
    if not isinstance(value, list):
        wrong(what, "must be an object or a list")
    found = [(_id_of(one), one) for one in items_of(cast(object, value))]
    for place, (id_, _) in enumerate(found):
        if not id_:
            wrong(f"{what}[{place}]", "has no id")
    return [(id_, one) for id_, one in found if id_]


def _id_of(value: object) -> str:
    if isinstance(value, str):
        return value
    named = members_of(value)
    found = named.get("id") or named.get("plan_id") or named.get("domain") or ""
    return found if isinstance(found, str) else ""


def _by_id(value: object, what: str, kind: type[Domain], wrong: Wrong) -> list[tuple[str, Domain]]:
    members = _members(value, what, wrong)
    return [(id_, shaped(kind, one, wrong, joined(what, id_)) if is_object(one) else kind()) for id_, one in members]
