"""`GET /metrics`: what Prometheus reads. It tells which agents there are and how busy they are: not for everybody."""

import asyncio

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from parley.core.runs import State
from parley.engine.exchange import Exchange
from parley.errors import ParleyError
from parley.faces.http import Endpoint, answer
from parley.faces.identity import demanded
from parley.faces.refusals import refuse
from parley.telemetry.metrics import MEDIA, Gauge, Metrics

MOST_WAITING = 1000
"""So far a queue is counted: a longer one is long enough to act."""
STORE_S = 2.0
"""How long the database is waited for."""


class MetricsFace:
    def __init__(self, metrics: Metrics, exchange: Exchange) -> None:
        self._metrics = metrics
        self._exchange = exchange

    def routes(self) -> list[Route]:
        return [Route("/metrics", Endpoint(self.show), methods=["GET"])]

    async def show(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            demanded(scope, "admin")
            gauges = await self._gauges()
        except ParleyError as error:
            return await refuse(send, error)
        return await answer(send, 200, await asyncio.to_thread(self._metrics.text, gauges), media=MEDIA)

    async def _gauges(self) -> list[Gauge]:
        exchange, members = self._exchange, self._exchange.membership
        return [
            Gauge("parley_followers", "Open streams, and callers that wait.", {"": exchange.streams.followers}),
            Gauge("parley_runs_under_way", "Turns that this process works on.", exchange.execution.busy),
            Gauge("parley_replicas", "Replicas that are alive, this one included.", {"": len(members.alive)}),
            Gauge("parley_leads", "Whether this replica looks after what is there once.", {"": int(members.leads)}),
            *await self._kept(),
        ]

    async def _kept(self) -> list[Gauge]:
        """What the store knows. Whoever watches is answered also when it is away: then above all."""
        about = "Whether the database answered just now."
        try:
            async with asyncio.timeout(STORE_S):
                waiting, size = await self._waiting(), await self._exchange.store.size()
        except (ParleyError, TimeoutError):
            return [Gauge("parley_store_up", about, {"": 0})]
        return [
            Gauge("parley_store_up", about, {"": 1}),
            Gauge("parley_store_bytes", "How large the database is.", {"": size}),
            Gauge("parley_runs_waiting", "Runs that wait for a slot of their agent.", waiting),
        ]

    async def _waiting(self) -> dict[str, int]:
        """Only where there is a limit can anybody wait for long."""
        store, agents = self._exchange.store, self._exchange.agents.values()
        limited = [agent.slug for agent in agents if agent.limits.max_concurrent is not None]
        return {slug: len(await store.runs_in(State.SUBMITTED, agent=slug, limit=MOST_WAITING)) for slug in limited}
