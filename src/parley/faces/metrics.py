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
        exchange = self._exchange
        return [
            Gauge("parley_followers", "Open streams, and callers that wait.", {"": exchange.streams.followers}),
            Gauge("parley_runs_under_way", "Turns that this process works on.", exchange.execution.busy),
            Gauge("parley_runs_waiting", "Runs that wait for a slot of their agent.", await self._waiting()),
        ]

    async def _waiting(self) -> dict[str, int]:
        """Only where there is a limit can anybody wait for long."""
        store, agents = self._exchange.store, self._exchange.agents.values()
        limited = [agent.slug for agent in agents if agent.limits.max_concurrent is not None]
        return {slug: len(await store.runs_in(State.SUBMITTED, agent=slug, limit=MOST_WAITING)) for slug in limited}
