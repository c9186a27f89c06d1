"""Whether an agent can be asked for an action, by whoever wants to ask."""

from collections.abc import Mapping

from parley.core.access import Principal, may_use
from parley.core.actions import Action, capable
from parley.core.agents import Agent
from parley.errors import AgentNotFound, NotCapable, ParleyError

_SHOWN = 80
"""Of a name that is none of ours, so much is repeated."""


def unable(
    agents: Mapping[str, Agent], principal: Principal, slug: str, action: Action | None = None
) -> ParleyError | None:
    """Why not, if it cannot."""
    agent = agents.get(slug)
    if agent is None or not may_use(principal, agent):
        return AgentNotFound(f"There is no agent {slug[:_SHOWN]!r} here.", agentSlug=slug[:_SHOWN])
    if action is None or capable(agent, action):
        return None
    return NotCapable(
        f"Agent {slug} does not have capability: {action.capability}",
        agentSlug=slug, requestedCapability=action.capability, availableCapabilities=agent.capabilities,
    )  # fmt: skip
