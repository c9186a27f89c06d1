"""The organisation as one agent: its name, its mission, and what it can be asked for."""

from msgspec.structs import replace

from parley.core.agents import Agent, Limits, Skill, plain_skill
from parley.orgkernel.definitions import PASSTHROUGH, Domain, Organisation, Workflow
from parley.orgkernel.files import INLINE_BYTES

LIMITS = Limits(max_concurrent=1, max_queued=10, timeout_s=600)
"""One task at a time, ten that wait, ten minutes of work: the contract's configuration as it stands."""
EXTRA: dict[str, object] = {"supportedProtocolVersions": ["1.0", "0.3"], "authentication": None}
"""The contract's fields beside A2A's own; the face knows which credentials it asks for, and says so in the second."""
MODES = ("text/plain", "text")
NAME = "Organization Kernel"
ALONE = "An agent without an active organization: it answers messages as they come."
GENERAL = Skill("general", "General", "Answers messages directly.", ("general",))
_SUFFIX = " Workflow"


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
    """One for each workflow that some role can follow, then one for each domain of a role that no workflow covers."""
    flows = [one for one in organisation.workflows if any(map(organisation.roles_for, one.domains))]
    covered = {domain for one in flows for domain in one.domains}
    others = [
        one for one in organisation.domains
        if one.id not in covered and one.id != PASSTHROUGH and organisation.roles_for(one.id)
    ]  # fmt: skip
    found = [*(_of_workflow(organisation, one) for one in flows), *(_of_domain(organisation, one) for one in others)]
    return tuple({skill.id: skill for skill in found}.values())


def _description(organisation: Organisation) -> str:
    said = [organisation.description.strip(), organisation.objective.strip()]
    return " ".join(one if one.endswith((".", "!", "?")) else f"{one}." for one in said if one) or organisation.name


def _of_workflow(organisation: Organisation, workflow: Workflow) -> Skill:
    """Called after its domain where it is the only one there: that is what the contract's card shows."""
    alone = len(workflow.domains) == 1 and len(organisation.workflows_for(workflow.domains[0])) == 1
    name = workflow.name.removesuffix(_SUFFIX) or workflow.name
    domain = organisation.domain(workflow.domains[0]) if workflow.domains else Domain()
    description = workflow.description or domain.description or f"{name}, step by step, with checks on the way."
    return Skill(
        workflow.domains[0] if alone else workflow.id, name, description, workflow.domains or ("workflow",),
        workflow.examples,
    )  # fmt: skip


def _of_domain(organisation: Organisation, domain: Domain) -> Skill:
    names = ", ".join(role.name for role in organisation.roles_for(domain.id)[:3])
    return Skill(domain.id, domain.name, domain.description or f"{domain.name}, by {names}.", (domain.id,))
