"""Actions that an agent does in a conversation: checks whether the agent can do them, and where a conversation
begins."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

from parley.documents.conversations import Conversations
from parley.errors import AgentNotFound, ConversationNotFound, NotCapable, ParleyError
from parley.runs.rules.access import Principal, may_use
from parley.runs.rules.agents import Agent, has_capability

T = TypeVar("T")

MAX_SHOWN = 80
"""Characters of an unknown agent's name that an error message repeats."""


class ActionRules(Protocol):
    """Rules of one action."""

    @property
    def mode(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def capability(self) -> str:
        """The capability that an agent needs for this action."""
        ...

    @property
    def begins(self) -> bool:
        """True if the action starts the conversation when it does not exist yet."""
        ...


class Actions:
    def __init__(self, agents: Mapping[str, Agent], conversations: Conversations) -> None:
        self._agents = agents
        self._conversations = conversations

    def check(self, principal: Principal, agent: str, action: ActionRules | None = None) -> None:
        """Raise if the agent cannot be used by the principal, or cannot do this action."""
        if refusal := agent_refusal(self._agents, principal, agent, action):
            raise refusal

    async def perform(
        self,
        principal: Principal,
        conversation: str,
        agent: str,
        action: ActionRules,
        do: Callable[[], Awaitable[T]],
    ) -> T:
        """Run an action. The conversation is checked first, then the agent. A valid request costs no extra reads: `do`
        itself raises ConversationNotFound, and is called again once the conversation has been started."""
        refusal = agent_refusal(self._agents, principal, agent, action)
        required = refusal is not None and not action.begins
        if not conversation or (required and not await self._exists(principal, conversation)):
            raise ConversationNotFound("There is no such conversation.", conversation=conversation)
        if refusal is not None:
            raise refusal
        try:
            return await do()
        except ConversationNotFound:
            if not await self._begun(principal, conversation, agent, action):
                raise
            return await do()

    async def _begun(self, principal: Principal, conversation: str, agent: str, action: ActionRules) -> bool:
        """Start the conversation if it may be started here; return whether it was. A conversation that its owner knows
        only from other faces is started at its first use. Any other needs an action that starts conversations."""
        if not action.begins:
            return await self._exists(principal, conversation)
        await self._conversations.begin(principal, agent, conversation)
        return True

    async def _exists(self, principal: Principal, conversation: str) -> bool:
        return await self._conversations.exists(principal, conversation) is not None


def agent_refusal(
    agents: Mapping[str, Agent], principal: Principal, slug: str, action: ActionRules | None = None
) -> ParleyError | None:
    """Return the reason why an agent cannot do an action, or None if it can."""
    agent = agents.get(slug)
    if agent is None or not may_use(principal, agent):
        return AgentNotFound(f"There is no agent {slug[:MAX_SHOWN]!r} here.", agentSlug=slug[:MAX_SHOWN])
    if action is None or has_capability(agent, action.mode, action.name, action.capability):
        return None
    return NotCapable(
        f"Agent {slug} does not have capability: {action.capability}",
        agentSlug=slug,
        requestedCapability=action.capability,
        availableCapabilities=agent.capabilities,
    )
