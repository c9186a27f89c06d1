"""An orderly end: what others can go on with is theirs before this process goes."""

import asyncio

from parley.engine.exchange import Exchange
from parley.telemetry import tell


async def drain(exchange: Exchange, drain_s: float) -> None:
    """Take nothing more; go on answering for a while, so that a balancer notices; hand over every turn; and when none
    of our own waits for anything here any more, send away those who follow."""
    tell("server.stopping", drain_s=drain_s)
    exchange.admission.stopping = True
    await asyncio.sleep(drain_s)
    await exchange.execution.close()
    exchange.streams.stop()
