"""Pairing operations for operators: create a pairing code, show the runtime of an agent, revoke it."""

from datetime import UTC, datetime
from typing import ClassVar

from parley.audit.service import record
from parley.clock import iso
from parley.faces.pairing.face import PairedFace
from parley.faces.pairing.messages import Platform
from parley.faces.pairing.packages import Packages
from parley.http.face import Proof, Request, Response, operation
from parley.paired.runtimes import CODE_LIFE_S, Code, Runtime
from parley.paired.service import RuntimeService
from parley.runs.rules.access import Principal
from parley.runs.rules.agents import Agent

ENDPOINT = "http://localhost:18789/run-task"
"""Address at which a runtime calls the local agent, as the local adapter contract defines it."""


class PairingCalls(PairedFace[Principal]):
    proof: ClassVar[Proof] = "caller"

    def __init__(self, service: RuntimeService, platform: Platform, base_url: str, packages: Packages) -> None:
        self._service = service
        self._platform = platform
        self._base_url = base_url
        self._packages = packages

    @operation("POST", "/admin/agents/{slug}/pairing", permission="admin")
    async def pair(self, request: Request[Principal]) -> Response:
        agent = self._service.agent(request.path["slug"])
        code, words = await self.new_code(agent)
        shown = {
            "pairing_token": code.text,
            "agent_id": agent.slug,
            "agent_name": agent.name,
            "api_base": self._base_url,
            "expires_at": iso(code.expires_at),
            "expires_in_seconds": CODE_LIFE_S,
            "instruction": words,
            "package_url": self._packages.address,
        }
        return Response(201, shown)

    @operation("GET", "/admin/agents/{slug}/runtime", permission="admin")
    async def state(self, request: Request[Principal]) -> Response:
        agent = self._service.agent(request.path["slug"])
        runtime = await self._service.runtimes.of(agent.slug)
        if runtime is None:
            return Response(200, {"agent_id": agent.slug, "paired": False, "online": False, "runtime": None})
        return Response(200, {"agent_id": agent.slug, "paired": True, **await self._shown(runtime)})

    @operation("DELETE", "/admin/agents/{slug}/runtime", permission="admin")
    async def revoke(self, request: Request[Principal]) -> Response:
        agent = self._service.agent(request.path["slug"])
        runtime = await self.take_away(agent)
        return Response(200, {"agent_id": agent.slug, "runtime_id": runtime.id, "revoked": True})

    async def new_code(self, agent: Agent) -> tuple[Code, str]:
        """Create a pairing code; return it with the instruction that a person gives to an AI assistant."""
        code = await self._service.runtimes.pair(agent.slug)
        await record("runtime.paired", "agent", agent.slug)
        return code, instruction(agent, code, self._platform, self._base_url, self._packages.install)

    async def take_away(self, agent: Agent) -> Runtime:
        """Revoke the runtime of an agent: its tasks go back to the queue, and its waiting calls end."""
        runtime = await self._service.revoke(agent.slug)
        await record("runtime.revoked", "agent", agent.slug)
        return runtime

    async def _shown(self, runtime: Runtime) -> dict[str, object]:
        runtimes = self._service.runtimes
        seen = await runtimes.last_seen(runtime)
        return {
            "online": runtimes.online(seen),
            "runtime": {
                "runtime_id": runtime.id,
                "name": runtime.name,
                "version": runtime.version,
                "capabilities": runtime.capabilities,
                "attached_at": iso(runtime.attached_at),
                "last_seen_at": iso(seen.at),
                "status": seen.status,
                "running": await self._service.claims.running(str(runtime.principal)),
            },
        }


def instruction(agent: Agent, code: Code, platform: Platform, base_url: str, install: str) -> str:
    """Return the instruction that a person gives to an AI assistant: one way to do it, without choices."""
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
