"""The organisation as one agent: its name, its mission, and what it can be asked for."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from parley.core.agents import Agent, Limits, Skill, plain_skill
from parley.orgkernel.definitions import PASSTHROUGH, Domain, Organisation, Workflow
from parley.orgkernel.files import INLINE_BYTES
from parley.orgkernel.graph import spine, steps

LIMITS = Limits(max_concurrent=1, max_queued=10, timeout_s=600)
"""One task at a time, ten that wait, ten minutes of work: the contract's configuration as it stands."""
EXTRA: dict[str, object] = {"supportedProtocolVersions": ["1.0", "0.3"], "authentication": None}
"""The contract's fields beside A2A's own; the face knows which credentials it asks for, and says so in the second."""
MODES = ("text/plain", "text")
NAME = "Organization Kernel"
ALONE = "An agent without an active organization: it answers messages as they come."
GENERAL = Skill("general", "General", "Answers messages directly.", ("general",))
_SUFFIX = " Workflow"
_MAX_STEPS = 8
_MAX_ROLES = 3


class Offer(Struct, frozen=True):
    """A skill, and what a message that asks for it is assigned to."""

    skill: Skill
    domain: str
    workflow: str = ""
    """The id of its workflow; empty where the message decides."""


def blank_agent(slug: str) -> Agent:
    """Only the organisation knows more of it: what a definition leaves out stays empty until that is read."""
    return Agent(
        slug, "", "", version="", limits=LIMITS, rescue="resume", push=False, extra=dict(EXTRA),
        input_modes=MODES, output_modes=MODES, inline_bytes=INLINE_BYTES,
    )  # fmt: skip


def described(agent: Agent, organisation: Organisation | None) -> Agent:
    """The agent with its gaps filled by the organisation, or with plain words when none is active."""
    known = organisation or Organisation("", NAME, ALONE, "1.0", "", (), (), ())
    own = agent.skills if agent.skills != (plain_skill(agent.slug, agent.name, agent.description),) else ()
    return replace(
        agent,
        name=agent.name or known.name,
        description=agent.description or _description(known),
        version=agent.version or known.version,
        skills=own or skills(known) or (GENERAL,),
    )


def skills(organisation: Organisation) -> tuple[Skill, ...]:
    return tuple(one.skill for one in offers(organisation))


def offers(organisation: Organisation) -> list[Offer]:
    """One for each domain that some role works in, and one for each workflow of a domain that has several."""
    found: dict[str, Offer] = {}
    for workflow in organisation.workflows:
        domains = [one for one in workflow.domains if one != PASSTHROUGH and organisation.roles_for(one)]
        for id_ in domains:
            found.setdefault(id_, _of_domain(organisation, organisation.domain(id_)))
        if domains and _only_workflow(organisation, domains[0]) != workflow:
            found.setdefault(workflow.id, _of_workflow(organisation, workflow, domains[0]))
    for domain in organisation.domains:
        if domain.id != PASSTHROUGH and organisation.roles_for(domain.id):
            found.setdefault(domain.id, _of_domain(organisation, domain))
    return list(found.values())


def _description(organisation: Organisation) -> str:
    said = [organisation.description.strip(), organisation.objective.strip()]
    return " ".join(one if one.endswith((".", "!", "?")) else f"{one}." for one in said if one) or organisation.name


def _only_workflow(organisation: Organisation, domain: str) -> Workflow | None:
    """The workflow that stands for its domain: the only one there, and in no other domain."""
    found = organisation.workflows_for(domain)
    return found[0] if len(found) == 1 and len(found[0].domains) == 1 else None


def _of_domain(organisation: Organisation, domain: Domain) -> Offer:
    """Named after its workflow where it has one alone: that is what a client would ask for."""
    only, flows = _only_workflow(organisation, domain.id), organisation.workflows_for(domain.id)
    done_by = _done_by(organisation, (domain.id,))
    if only is not None:
        description = only.description or domain.description or f"{_steps(only)} {done_by}"
        return Offer(Skill(domain.id, _name(only), description, (domain.id,), only.examples), domain.id, only.id)
    what = ", ".join(map(_name, flows)) or domain.name
    return Offer(Skill(domain.id, domain.name, domain.description or f"{what}. {done_by}", (domain.id,)), domain.id)


def _of_workflow(organisation: Organisation, workflow: Workflow, domain: str) -> Offer:
    description = workflow.description or f"{_steps(workflow)} {_done_by(organisation, workflow.domains)}"
    return Offer(
        Skill(workflow.id, _name(workflow), description, workflow.domains, workflow.examples), domain, workflow.id
    )


def _name(workflow: Workflow) -> str:
    return workflow.name.removesuffix(_SUFFIX) or workflow.name


def _steps(workflow: Workflow) -> str:
    """The steps on the way without failure: "Reproduce the bug, implement the fix."."""
    way = spine(workflow.graph)
    names = [workflow.graph.nodes[one].name for one in steps(workflow) if one in way]
    shown = [*names[:_MAX_STEPS], *(["…"] if len(names) > _MAX_STEPS else [])]
    return ", ".join([*shown[:1], *map(_lowered, shown[1:])]) + "." if shown else f"{_name(workflow)}."


def _lowered(order: str) -> str:
    return order if order[1:2].isupper() else order[:1].lower() + order[1:]


def _done_by(organisation: Organisation, domains: Sequence[str]) -> str:
    roles = dict.fromkeys(role.name for domain in domains for role in organisation.roles_for(domain))
    return f"Done by: {', '.join(list(roles)[:_MAX_ROLES])}."
