"""What an organisation is made of: roles, domains and workflows, as the specification writes them and as they ship."""

from itertools import pairwise
from typing import Literal, cast

from msgspec import Struct, field
from msgspec.structs import replace

from parley.errors import Invalid
from parley.orgkernel.shapes import Wrong, is_object, items_of, joined, members_of, shaped
from parley.orgkernel.triggers import Trigger, parse_trigger
from parley.orgkernel.wording import plain_name, title_name

Level = Literal["primary", "alternate", "contingent", "emergency"]
NodeType = Literal["start", "task", "decision", "checkpoint", "escalate", "exit"]
Condition = Literal["on_success", "on_fail", "on_retry", "on_exhaust", "always"]
Check = Literal["output_contains", "output_not_contains", "exit_code_zero", "any_output", "file_exists", "manual"]

LEVELS: tuple[Level, ...] = ("primary", "alternate", "contingent", "emergency")
PASSTHROUGH = "conversational"
"""The domain of whatever fits no other."""
_AUTHORITY = {"specialist": 1, "executive": 2, "commander": 3}
_TRIGGERS: dict[Level, str] = {
    "primary": "",
    "alternate": "consecutive_tool_failures >= 3",
    "contingent": "consecutive_tool_failures >= 5 OR context_fill > 0.85",
    "emergency": "unrecoverable_error OR turns_without_progress > max*1.5 OR consecutive_tool_failures >= 8",
}
_ALWAYS_EMERGENCY = "consecutive_tool_failures >= 8 OR turns_without_progress > max*1.5"
"""Whatever a role's own plan says: work that only fails must end."""


class Mission(Struct, frozen=True):
    objective: str = ""


class Member(Struct, frozen=True):
    role_id: str = ""


class Doctrine(Struct, frozen=True):
    """How often a role reports, and how long it may try. None: as the organisation says."""

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


class Node(Struct, frozen=True):
    """One node of a workflow. How its work is done (from `command` on) is ours."""

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
    """A program and its arguments; a placeholder is an argument by itself, or the beginning of a path."""
    timeout_s: float = 60.0
    output_file: str = ""
    """What the tool says becomes this file, below the folder of the task."""
    needs_model: bool = False
    """Passed over where there is no model but the offline one."""
    runs_code: bool = True
    """Whether the command may run files of the task. Then, once a model has written some, it needs approval."""


class Edge(Struct, frozen=True):
    start: str = field(default="", name="from")
    to: str = ""
    condition: Condition = "always"


class Graph(Struct, frozen=True):
    start: str = ""
    nodes: dict[str, Node] = {}
    edges: tuple[Edge, ...] = ()


class Workflow(Struct, frozen=True):
    id: str = ""
    name: str = ""
    description: str = ""
    domains: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    trigger_threshold: int = 1
    examples: tuple[str, ...] = ()
    graph: Graph = Graph()


class Pace(Struct, frozen=True):
    """A level of a role, ready for use."""

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
        """After how many turns it reports, if nothing changes."""
        return max(1, self.doctrine.salute_interval_turns or 5)

    @property
    def patience(self) -> int:
        """How many turns without progress it may take."""
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
        """Who can work in a domain, the lowest authority first; among equals in the order of the routing table."""
        order = self.routing.get(domain, ())
        able = [role for role in self.roles if domain in role.domains]
        return sorted(able, key=lambda role: (role.authority, order.index(role.id) if role.id in order else len(order)))

    def workflows_for(self, domain: str) -> list[Workflow]:
        return [workflow for workflow in self.workflows if domain in workflow.domains]

    def workflow(self, name: str) -> Workflow | None:
        """By its id or by its name: reports hold either."""
        return next((one for one in self.workflows if name and name in (one.id, one.name)), None)

    def role(self, id_: str) -> Role | None:
        return next((role for role in self.roles if role.id == id_), None)

    def domain(self, id_: str) -> Domain:
        found = next((one for one in self.domains if one.id == id_), None)
        return found or Domain(id_, plain_name(id_))


class OrganisationFile(Struct, frozen=True):
    """`active.json`. Shipped files lack `mission` and have `domain_routing` and `defaults` instead."""

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
        wrong("hierarchy", "names no role, so nothing can be done")
    return found


def read_role(value: object, id_: str, defaults: Doctrine, wrong: Wrong) -> Role:
    found = shaped(_RoleFile, value, wrong)
    if found.role_id and found.role_id != id_:
        wrong("role_id", f"is {found.role_id!r}, but the file is called after {id_!r}")
    able, chain = found.capabilities, found.chain_of_command
    return Role(
        id_, found.role_name or plain_name(id_), chain.authority_level or _AUTHORITY[found.role_type], chain.reports_to,
        able.bst_domains, able.htn_plans, (*able.tools_primary, *able.tools_secondary),
        _pace(found.pace_plan, wrong), _doctrine(found.doctrine, defaults),
    )  # fmt: skip


def _pace(plan: dict[str, Stage], wrong: Wrong) -> tuple[Pace, ...]:
    for name in plan.keys() - set(LEVELS):
        wrong(f"pace_plan.{name}", f"is no level; there are {', '.join(LEVELS)}")
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
    """A mapping by id, or a list; by itself, or as the member `domains` of an object with other members."""
    return tuple(
        Domain(id_, one.name or plain_name(id_), one.description, one.triggers)
        for id_, one in _by_id(_unwrapped(value, "domains"), "domains", Domain, wrong)
    )


def read_workflows(value: object, wrong: Wrong) -> tuple[Workflow, ...]:
    """A library (`{"plans": {…}}`), a mapping of workflows by id, a list of them, or one alone."""
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
    graph = Graph(graph.start or _first_start(nodes), nodes, graph.edges)
    return Workflow(
        id_, found.name or title_name(id_), found.description, found.domains, found.triggers,
        max(1, found.trigger_threshold), found.examples, graph,
    )  # fmt: skip


def _named(id_: str, node: Node) -> Node:
    return replace(node, id=id_, name=node.name or plain_name(id_))


def _first_start(nodes: dict[str, Node]) -> str:
    return next((name for name, node in nodes.items() if node.type == "start"), "start" if "start" in nodes else "")


def _linear(steps: list[object], path: str, wrong: Wrong) -> Graph:
    """A list of steps is a graph without branches, and a question where it cannot go on."""
    found = [
        Node(name=step) if isinstance(step, str) else shaped(Node, step, wrong, f"{path}[{place}]")
        for place, step in enumerate(steps)
    ]
    names = [f"step_{place}" for place in range(1, len(found) + 1)]
    chain = ["start", *names, "done"]
    nodes = {"start": Node(type="start", name="Begin"), **dict(zip(names, found, strict=True))}
    nodes["stuck"] = Node(type="escalate", name="Ask for guidance", reason="A step could not be completed")
    nodes["done"] = Node(type="exit", name="Done")
    ahead = [Edge(one, two, "on_success") for one, two in pairwise(chain)]
    return Graph("start", nodes, (*ahead, *(Edge(name, "stuck", "on_exhaust") for name in names)))


def _unwrapped(value: object, member: str) -> object:
    return members_of(value).get(member, value)


def _members(value: object, what: str, wrong: Wrong) -> list[tuple[str, object]]:
    """By id: the key of a mapping, or the member `id` of each of a list."""
    if is_object(value):
        return [(key, one) for key, one in members_of(value).items() if not key.startswith("_")]
    if not isinstance(value, list):
        wrong(what, "expected an object or a list")
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
