"""Operations for runtimes and their operators: attach, pull tasks, wait for tasks to stop, detach.

A waiting call gets a future that fails when its caller disconnects. The call then ends with that failure, and tasks
that were claimed for the caller return to the queue at once; otherwise they would be blocked until their lease expires.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from parley.errors import AgentNotFound, Forbidden, NotAnEdgeAgent, NotFound, RunNotFound
from parley.execution.driver import PairedWork
from parley.ids import RunId, is_id
from parley.paired.claims import LOOK_S, PairedClaim, PairedClaims
from parley.paired.leases import Lease, last_claim
from parley.paired.runtimes import Described, Runtime, Runtimes
from parley.runs.rules.agents import Agent
from parley.runs.rules.state import Run, State
from parley.runs.service import Exchange

MAX_COUNTED = 1000

Gone = asyncio.Future[None]
"""Fails when the caller of a waiting call disconnects; otherwise it is never done."""


class TasksToStop(NamedTuple):
    canceled: list[str]
    lost: list[str]


def edge_agent(exchange: Exchange, slug: str) -> Agent:
    """Return the agent, if a paired runtime does its work."""
    driver = exchange.driver(slug)
    if driver is None:
        raise AgentNotFound(f"There is no agent {slug!r} here.")
    if not isinstance(driver, PairedWork):
        raise NotAnEdgeAgent(f"The agent {slug} runs on this server; only an agent with the driver edge can be paired.")
    return driver.agent


class RuntimeService:
    def __init__(self, exchange: Exchange, claims: PairedClaims, runtimes: Runtimes) -> None:
        self.exchange = exchange
        self.claims = claims
        self.runtimes = runtimes

    def agent(self, slug: str) -> Agent:
        return edge_agent(self.exchange, slug)

    async def revoke(self, slug: str) -> Runtime:
        """Revoke an agent's runtime: its tasks return to the queue, and its waiting calls end."""
        runtime = await self.runtimes.revoke(slug)
        if runtime is None:
            raise NotFound(f"The agent {slug} has no runtime.")
        await self.claims.release_all(str(runtime.principal))
        self.exchange.offer(slug)
        return runtime

    async def queued(self, runtime: Runtime) -> int:
        """Return the number of tasks that wait for the runtime's agent, counted up to 1000."""
        return len(await self.exchange.store.runs_in(State.SUBMITTED, agent=runtime.agent, limit=MAX_COUNTED))

    async def attach(self, code: str, described: Described) -> tuple[Runtime, str]:
        """Pair a runtime; return it and its token. Tasks of the runtime that it replaces return to the queue."""
        runtime, token, before = await self.runtimes.attach(code, described)
        if before is not None:
            await self.claims.release_all(str(before.principal))
        # Waiting calls of the replaced runtime end at once.
        self.exchange.offer(runtime.agent)
        return runtime, token

    async def detach(self, runtime: Runtime, instance: str) -> None:
        """Show the runtime as offline, and release the claims of this process of it."""
        await self.runtimes.note(runtime, "detached")
        await self.claims.release_instance(str(runtime.principal), instance)

    async def last_claim(self, runtime: Runtime, run_id: str, instance: str) -> Lease | None:
        """Return the lease of a task for a runtime that names only the task."""
        run = await self.exchange.commands.stored(run_id)
        if run is None or run.agent != runtime.agent:
            return None
        return last_claim(run, str(runtime.principal), instance)

    async def run(self, runtime: Runtime, run_id: str) -> Run:
        """Return a run of the runtime's agent. Other runs answer 404."""
        run = await self.exchange.commands.stored(run_id)
        if run is None or run.agent != runtime.agent:
            raise RunNotFound("Task run not found.")
        return run

    async def stops(self, runtime: Runtime, run_ids: Sequence[str], wait_s: float, gone: Gone) -> TasksToStop:
        """Return as soon as one of the tasks must stop, or when the time is up."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        with self.exchange.growth.subscribed(run_ids) as grown:
            while True:
                grown.clear()
                found = await self._to_stop(runtime, run_ids)
                left_s = until - loop.time()
                if found.canceled or found.lost or left_s <= 0:
                    return found
                await _signal(grown, left_s, gone)
                await self.runtimes.check(runtime)

    async def check_in(self, runtime: Runtime, slug: str) -> None:
        """Record that a runtime asks for tasks of an agent. Raise Forbidden if the agent is not its own."""
        if slug != runtime.agent:
            raise Forbidden("This runtime works for another agent.")
        self.agent(slug)
        await self.runtimes.note(runtime)

    async def pull(self, runtime: Runtime, instance: str, most: int, wait_s: float, gone: Gone) -> list[PairedClaim]:
        """Return tasks at once, or as soon as there is one; an empty list when the time is up."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        with self.exchange.offers.subscribed([runtime.agent]) as offered:
            while True:
                offered.clear()
                claims = await self.claims.claim(str(runtime.principal), runtime.agent, most, instance)
                await self._confirm(claims, runtime, gone)
                if claims or loop.time() >= until:
                    return claims
                await _signal(offered, min(until - loop.time(), LOOK_S), gone)

    async def _confirm(self, claims: Sequence[PairedClaim], runtime: Runtime, gone: Gone) -> None:
        """Release the claims of a caller that has disconnected, or whose runtime was replaced at this moment."""
        try:
            await self.runtimes.check(runtime)
            if gone.done():
                gone.result()
        except BaseException:
            await self.claims.release_each(claim.lease for claim in claims)
            raise

    async def _to_stop(self, runtime: Runtime, run_ids: Sequence[str]) -> TasksToStop:
        found, owner = TasksToStop([], []), str(runtime.principal)
        for run_id in run_ids:
            how = await self.claims.stands(owner, RunId(run_id), runtime.agent) if is_id(run_id) else "lost"
            if how == "canceled":
                found.canceled.append(run_id)
            elif how == "lost":
                found.lost.append(run_id)
        return found


async def _signal(event: asyncio.Event, at_most_s: float, gone: Gone) -> None:
    """Wait until the event is set or the time is up. Raise when the caller disconnects."""
    waiting = asyncio.get_running_loop().create_task(event.wait())
    try:
        await asyncio.wait({waiting, gone}, timeout=max(0.0, at_most_s), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if gone.done():
        gone.result()
