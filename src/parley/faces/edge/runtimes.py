"""The calls of a runtime about itself: it attaches, says that it lives, asks what to stop, and takes its leave."""

import asyncio

from starlette.routing import Route
from starlette.types import Receive, Scope

from parley.clock import iso, now_ms
from parley.core.agents import Agent
from parley.core.leases import Lease, last_claim
from parley.core.runs import State
from parley.engine.elsewhere import Elsewhere
from parley.engine.exchange import Exchange
from parley.engine.ports import Distant
from parley.errors import AgentNotFound, NotAnEdgeAgent
from parley.faces.edge.claims import Platform, lease_id, lease_named
from parley.faces.edge.operations import ATTACH, CONTROL, DETACH, HEARTBEAT, STATUS
from parley.faces.edge.replies import Attached, Beat, Detached, Renewed, RuntimeStatus, Stops
from parley.faces.edge.serving import Reply, body_of, instance_of, rung, token_of, watching
from parley.faces.edge.words import AttachIn, ControlIn, HeartbeatIn, HeldIn, Nothing
from parley.ids import RunId, is_id
from parley.security.runtimes import Described, Runtime, Runtimes

PULL_INTERVAL_S = 1
MAX_BODY = 256 * 1024
MAX_COUNTED = 1000


def edge_agent(exchange: Exchange, slug: str) -> Agent:
    """The agent, if its work is done elsewhere."""
    driver = exchange.driver(slug)
    if driver is None:
        raise AgentNotFound(f"There is no agent {slug!r} here.")
    if not isinstance(driver, Distant):
        raise NotAnEdgeAgent(f"The agent {slug} does its work here; only one with the driver edge can be paired.")
    return driver.agent


class RuntimeCalls:
    def __init__(
        self, exchange: Exchange, elsewhere: Elsewhere, runtimes: Runtimes, platform: Platform, lease_s: float
    ) -> None:
        self._exchange = exchange
        self._elsewhere = elsewhere
        self._runtimes = runtimes
        self._platform = platform
        self._lease_s = lease_s

    def routes(self) -> list[Route]:
        return [
            ATTACH.served_by(self.attach),
            HEARTBEAT.served_by(self.heartbeat),
            CONTROL.served_by(self.control),
            DETACH.served_by(self.detach),
            STATUS.served_by(self.status),
        ]

    async def attach(self, scope: Scope, receive: Receive) -> Reply:
        wanted = await body_of(receive, AttachIn, MAX_BODY)
        described = Described(wanted.runtime_name or "", wanted.runtime_version or "", wanted.capabilities or {})
        runtime, token, before = await self._runtimes.attach(wanted.pairing_token, described)
        if before is not None:
            await self._elsewhere.release_all(str(before.principal))
        # Whoever still waits in the other's name is told at once.
        self._exchange.offer(runtime.agent)
        return 200, Attached(
            token, runtime.id, runtime.agent, edge_agent(self._exchange, runtime.agent).name, self._platform,
            heartbeat_interval_seconds=_number(self._runtimes.heartbeat_s),
            pull_interval_seconds=PULL_INTERVAL_S, lease_seconds=_number(self._lease_s),
        )  # fmt: skip

    async def heartbeat(self, scope: Scope, receive: Receive) -> Reply:
        runtime = await self._runtimes.runtime_for(token_of(scope))
        told = await body_of(receive, HeartbeatIn, MAX_BODY)
        instance = instance_of(scope)
        await self._runtimes.note(runtime, told.status or "ready")
        claims = [(one.task_run_id, await self._lease(runtime, one, instance)) for one in told.task_runs or ()]
        held = await self._elsewhere.renew([lease for _, lease in claims if lease is not None])
        unknown = [run_id for run_id, lease in claims if lease is None]
        return 200, Beat(
            runtime.id, runtime.agent, iso(now_ms()),
            [Renewed(one.lease.run, lease_id(one.lease), iso(one.until)) for one in held if one.standing == "held"],
            lost_task_run_ids=[*unknown, *(one.lease.run for one in held if one.standing == "lost")],
            cancel_task_run_ids=[one.lease.run for one in held if one.standing == "canceled"],
        )  # fmt: skip

    async def control(self, scope: Scope, receive: Receive) -> Reply:
        """Answers as soon as something is to be stopped; else when the time is up."""
        runtime = await self._runtimes.runtime_for(token_of(scope))
        asked = await body_of(receive, ControlIn, MAX_BODY)
        run_ids, owner = asked.task_run_ids or [], str(runtime.principal)
        until = asyncio.get_running_loop().time() + asked.wait_s
        async with watching(receive) as gone:
            with self._exchange.growth.hung(run_ids) as bell:
                while True:
                    bell.clear()
                    canceled, lost = await self._to_stop(owner, runtime.agent, run_ids)
                    left_s = until - asyncio.get_running_loop().time()
                    if canceled or lost or left_s <= 0:
                        return 200, Stops(canceled, lost)
                    await rung(bell, left_s, gone)
                    await self._runtimes.check(runtime)

    async def detach(self, scope: Scope, receive: Receive) -> Reply:
        runtime = await self._runtimes.runtime_for(token_of(scope))
        await body_of(receive, Nothing, MAX_BODY)
        instance = instance_of(scope)
        await self._runtimes.note(runtime, "detached")
        await self._elsewhere.release_instance(str(runtime.principal), instance)
        return 200, Detached(runtime.id)

    async def status(self, scope: Scope, receive: Receive) -> Reply:
        runtime = await self._runtimes.runtime_for(token_of(scope))
        seen = await self._runtimes.last_seen(runtime)
        waiting = await self._exchange.store.runs_in(State.SUBMITTED, agent=runtime.agent, limit=MAX_COUNTED)
        agent = edge_agent(self._exchange, runtime.agent)
        return 200, RuntimeStatus(
            runtime.id, agent.slug, agent.name, self._platform, iso(runtime.attached_at), iso(seen.at), active=True,
            queued=len(waiting), running=await self._elsewhere.running(str(runtime.principal)),
        )  # fmt: skip

    async def _lease(self, runtime: Runtime, held: HeldIn, instance: str) -> Lease | None:
        if held.lease_id is not None:
            return lease_named(runtime, held.task_run_id, held.lease_id, instance)
        run = await self._exchange.commands.stored(held.task_run_id)
        if run is None or run.agent != runtime.agent:
            return None
        return last_claim(run, str(runtime.principal), instance)

    async def _to_stop(self, owner: str, agent: str, run_ids: list[str]) -> tuple[list[str], list[str]]:
        canceled: list[str] = []
        lost: list[str] = []
        for run_id in run_ids:
            how = await self._elsewhere.stands(owner, RunId(run_id), agent) if is_id(run_id) else "lost"
            if how == "canceled":
                canceled.append(run_id)
            elif how == "lost":
                lost.append(run_id)
        return canceled, lost


def _number(seconds: float) -> float | int:
    return int(seconds) if seconds.is_integer() else seconds
