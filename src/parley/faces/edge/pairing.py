"""Pairing, for operators: a code for a person's AI assistant, what runtime an agent has, and taking that away."""

from datetime import UTC, datetime

from starlette.routing import Route
from starlette.types import Receive, Scope

from parley.clock import iso
from parley.core.access import Principal, demand
from parley.core.agents import Agent
from parley.engine.elsewhere import Elsewhere
from parley.engine.exchange import Exchange
from parley.errors import NotFound, Unauthenticated
from parley.faces.edge.claims import Platform
from parley.faces.edge.packages import Packages
from parley.faces.edge.runtimes import edge_agent
from parley.faces.edge.serving import Action, Reply, route
from parley.security.runtimes import CODE_LIFE_S, Code, Runtime, Runtimes

ENDPOINT = "http://localhost:18789/run-task"
"""Where the local adapter contract has a runtime look for the local agent."""


class PairingCalls:
    def __init__(
        self, exchange: Exchange, elsewhere: Elsewhere, runtimes: Runtimes, platform: Platform, base_url: str,
        packages: Packages,
    ) -> None:  # fmt: skip
        self._exchange = exchange
        self._elsewhere = elsewhere
        self._runtimes = runtimes
        self._platform = platform
        self._base_url = base_url
        self._packages = packages

    def routes(self) -> list[Route]:
        return [
            route("POST", "/admin/agents/{slug}/pairing", _by_admin(self.pair)),
            route("GET", "/admin/agents/{slug}/runtime", _by_admin(self.state)),
            route("DELETE", "/admin/agents/{slug}/runtime", _by_admin(self.revoke)),
        ]

    async def pair(self, scope: Scope, receive: Receive) -> Reply:
        agent = edge_agent(self._exchange, scope["path_params"]["slug"])
        code, words = await self.new_code(agent)
        return 201, {
            "pairing_token": code.text, "agent_id": agent.slug, "agent_name": agent.name, "api_base": self._base_url,
            "expires_at": iso(code.expires_at), "expires_in_seconds": CODE_LIFE_S, "instruction": words,
            "package_url": self._packages.address,
        }  # fmt: skip

    async def new_code(self, agent: Agent) -> tuple[Code, str]:
        """A code, and what a person gives to an AI assistant with it."""
        code = await self._runtimes.pair(agent.slug)
        return code, instruction(agent, code, self._platform, self._base_url, self._packages.install)

    async def state(self, scope: Scope, receive: Receive) -> Reply:
        agent = edge_agent(self._exchange, scope["path_params"]["slug"])
        runtime = await self._runtimes.of(agent.slug)
        if runtime is None:
            return 200, {"agent_id": agent.slug, "paired": False, "online": False, "runtime": None}
        return 200, {"agent_id": agent.slug, "paired": True, **await self._shown(runtime)}

    async def revoke(self, scope: Scope, receive: Receive) -> Reply:
        agent = edge_agent(self._exchange, scope["path_params"]["slug"])
        runtime = await self.take_away(agent)
        return 200, {"agent_id": agent.slug, "runtime_id": runtime.id, "revoked": True}

    async def take_away(self, agent: Agent) -> Runtime:
        """The tasks of its runtime go back to the queue, and whoever waits in its name is told."""
        runtime = await self._runtimes.revoke(agent.slug)
        if runtime is None:
            raise NotFound(f"The agent {agent.slug} has no runtime.")
        await self._elsewhere.release_all(str(runtime.principal))
        self._exchange.offer(agent.slug)
        return runtime

    async def _shown(self, runtime: Runtime) -> dict[str, object]:
        seen = await self._runtimes.last_seen(runtime)
        return {
            "online": self._runtimes.online(seen),
            "runtime": {
                "runtime_id": runtime.id, "name": runtime.name, "version": runtime.version,
                "capabilities": runtime.capabilities, "attached_at": iso(runtime.attached_at),
                "last_seen_at": iso(seen.at), "status": seen.status,
                "running": await self._elsewhere.running(str(runtime.principal)),
            },
        }  # fmt: skip


def instruction(agent: Agent, code: Code, platform: Platform, base_url: str, install: str) -> str:
    """What a person gives to an AI assistant: one way, and nothing to choose."""
    until = datetime.fromtimestamp(code.expires_at / 1000, UTC)
    return (
        f'Please connect this computer to my agent "{agent.name}" (id {agent.slug}) on {platform.name}, '
        f"so that it can do the agent's tasks.\n\n"
        f"The platform's address is {base_url}. The pairing code is {code.text}; "
        f"it works once, until {until:%H:%M} UTC.\n\n"
        f"Run these commands, one after another:\n\n"
        f"    {install}\n"
        f"    a2a-runtime pair --api-base {base_url} --code {code.text}\n"
        f"    a2a-runtime start\n\n"
        f"Leave the last one running; nothing on this computer has to be reachable from outside. "
        f"It fetches each task and sends it to the program that does the work, by POST to {ENDPOINT}. "
        f'The task is JSON, with what is asked in input.text, and {{"success": true, "output": {{"text": "…"}}}} '
        f"is an answer. If nothing listens there yet, this lets any program do the work that reads a text "
        f"and prints its answer; leave it running too:\n\n"
        f"    a2a-runtime adapter --command 'PROGRAM'\n\n"
        f'"a2a-runtime doctor" tells whether everything is in place. '
        f'If a command says "Invalid pairing token", ask me for a new code.\n'
    )


def _by_admin(action: Action) -> Action:
    async def checked(scope: Scope, receive: Receive) -> Reply:
        principal: Principal | None = scope["principal"]
        if principal is None:
            raise Unauthenticated("This needs credentials.")
        demand(principal, "admin")
        return await action(scope, receive)

    return checked
