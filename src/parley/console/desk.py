"""What pages may ask: the engine and what stands beside it, handed over once."""

from collections.abc import Callable

import httpx2
from msgspec import Struct

from parley.core.access import Principal, may_see, may_use
from parley.core.agents import Agent
from parley.core.runs import Run
from parley.definitions.added import Added
from parley.definitions.watching import Problem
from parley.engine.conversations import Conversations, Exported
from parley.engine.documents import Documents
from parley.engine.elsewhere import Elsewhere
from parley.engine.exchange import Exchange
from parley.engine.hooks import Hooks
from parley.engine.nodes import Nodes
from parley.errors import AgentNotFound
from parley.faces.edge.pairing import PairingCalls
from parley.security.credentials import Gate
from parley.security.runtimes import Runtimes
from parley.security.sessions import Sessions
from parley.settings import Settings
from parley.telemetry.samples import Samples


class Beside(Struct, frozen=True):
    """What stands beside the exchange: documents, nodes, receivers of updates, and how the server was set up."""

    documents: Documents
    conversations: Conversations
    link: Callable[[str, Exported], str]
    """The address of a file that an export has made."""
    nodes: Nodes
    hooks: Hooks
    settings: Settings
    problems: Callable[[], list[Problem]]
    """Definitions that cannot be used."""


class Newcomers(Struct, frozen=True):
    """What agents are added and paired with."""

    pairing: PairingCalls
    added: Added
    open_client: Callable[[], httpx2.AsyncClient]
    """For addresses that somebody typed: it calls only where calls may go."""


class Desk(Struct, frozen=True):
    exchange: Exchange
    gate: Gate
    sessions: Sessions
    runtimes: Runtimes
    elsewhere: Elsewhere
    base_url: str
    platform: str
    """How this server is called."""
    version: str
    beside: Beside
    samples: Samples
    newcomers: Newcomers

    def agents(self, principal: Principal) -> list[Agent]:
        """Those that exist for somebody, by name."""
        known = [agent for agent in self.exchange.agents.values() if may_use(principal, agent)]
        return sorted(known, key=lambda agent: agent.name.lower())

    def agent(self, slug: str, principal: Principal) -> Agent:
        agent = self.exchange.agents.get(slug)
        if agent is None or not may_use(principal, agent):
            raise AgentNotFound(f"There is no agent {slug!r} here.")
        return agent

    def name_of(self, slug: str) -> str:
        """What people call an agent; one that is no longer served by its slug."""
        agent = self.exchange.agents.get(slug)
        return agent.name if agent else slug

    def owner(self, principal: Principal) -> str | None:
        """Whose runs somebody sees: everybody's, for an administrator."""
        return None if principal.may("admin") else str(principal)

    def sees(self, principal: Principal, run: Run) -> bool:
        return not run.gone and may_see(principal, run.principal)
