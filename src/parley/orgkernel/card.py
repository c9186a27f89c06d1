"""The organisation as one agent: its name, its description and its skills."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from parley.orgkernel.definitions import PASSTHROUGH, Domain, Organisation, Workflow
from parley.orgkernel.files import INLINE_BYTES
from parley.orgkernel.graph import spine, steps
from parley.runs.rules.agents import Agent, Limits, Skill, plain_skill

LIMITS = Limits(max_concurrent=1, max_queued=10, timeout_s=600)
"""The defaults of the organisation contract (001): one task at a time, ten queued, ten minutes of work."""
EXTRA: dict[str, object] = {"supportedProtocolVersions": ["1.0", "0.3"], "authentication": None}
"""Fields that the contract adds to the A2A card. The face fills in `authentication`, because it knows the accepted
credentials."""
MODES = ("text/plain", "text")
NAME = "Organization Kernel"
ALONE = "An agent without an active organization: it answers messages as they come."
GENERAL = Skill("general", "General", "Answers messages directly.", ("general",))
_SUFFIX = " Workflow"
_MAX_STEPS = 8
_MAX_ROLES = 3


class SkillOffer(Struct, frozen=True):
    """A skill, and the domain and workflow for messages that request it."""

    skill: Skill
    domain: str
    workflow: str = ""
    """Id of its workflow; empty if the message decides."""


def blank_agent(slug: str) -> Agent:
    """Return an empty agent. Fields that a definition leaves out stay empty until the organisation is read."""
    return Agent(
        slug,
        "",
        "",
        version="",
        limits=LIMITS,
        rescue="resume",
        push=False,
        extra=dict(EXTRA),
        input_modes=MODES,
        output_modes=MODES,
        inline_bytes=INLINE_BYTES,
    )


def described(agent: Agent, organisation: Organisation | None) -> Agent:
    """Return the agent with its empty fields filled: from the organisation, or with defaults if none is active."""
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


def offers(organisation: Organisation) -> list[SkillOffer]:
    """Return one skill for each domain that a role works in, and one for each workflow of a domain with several."""
    found: dict[str, SkillOffer] = {}
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
    """Return the domain's only workflow, if it belongs to no other domain; else None."""
    found = organisation.workflows_for(domain)
    return found[0] if len(found) == 1 and len(found[0].domains) == 1 else None


def _of_domain(organisation: Organisation, domain: Domain) -> SkillOffer:
    """Return the skill of a domain. A domain with only one workflow gets the workflow's name, because clients would ask
    for that."""
    only, flows = _only_workflow(organisation, domain.id), organisation.workflows_for(domain.id)
    done_by = _done_by(organisation, (domain.id,))
    if only is not None:
        description = only.description or domain.description or f"{_steps(only)} {done_by}"
        return SkillOffer(Skill(domain.id, _name(only), description, (domain.id,), only.examples), domain.id, only.id)
    what = ", ".join(map(_name, flows)) or domain.name
    return SkillOffer(
        Skill(domain.id, domain.name, domain.description or f"{what}. {done_by}", (domain.id,)), domain.id
    )


def _of_workflow(organisation: Organisation, workflow: Workflow, domain: str) -> SkillOffer:
    description = workflow.description or f"{_steps(workflow)} {_done_by(organisation, workflow.domains)}"
    return SkillOffer(
        Skill(workflow.id, _name(workflow), description, workflow.domains, workflow.examples), domain, workflow.id
    )


def _name(workflow: Workflow) -> str:
    return workflow.name.removesuffix(_SUFFIX) or workflow.name


def _steps(workflow: Workflow) -> str:
    """Return the steps of the success path: "Reproduce the bug, implement the fix."."""
    way = spine(workflow.graph)
    names = [workflow.graph.nodes[one].name for one in steps(workflow) if one in way]
    shown = [*names[:_MAX_STEPS], *(["…"] if len(names) > _MAX_STEPS else [])]
    return ", ".join([*shown[:1], *map(_lowered, shown[1:])]) + "." if shown else f"{_name(workflow)}."


def _lowered(order: str) -> str:
    return order if order[1:2].isupper() else order[:1].lower() + order[1:]


def _done_by(organisation: Organisation, domains: Sequence[str]) -> str:
    roles = dict.fromkeys(role.name for domain in domains for role in organisation.roles_for(domain))
    return f"Done by: {', '.join(list(roles)[:_MAX_ROLES])}."
