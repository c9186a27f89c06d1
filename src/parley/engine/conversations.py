"""Conversations as their owners know them."""

from parley.clock import Clock, now_ms
from parley.core.access import Principal
from parley.core.conversations import conversation_for
from parley.core.documents import Conversation
from parley.engine.exchange import Exchange
from parley.engine.ports import Listing


class Conversations:
    def __init__(self, exchange: Exchange, clock: Clock = now_ms) -> None:
        self._exchange = exchange
        self._clock = clock

    async def begin(self, principal: Principal, agent: str, id_: str | None = None) -> Conversation:
        """A new one, or the one of that name as it is."""
        conversation = Conversation(str(principal), conversation_for(id_), agent, self._clock())
        return await self._exchange.store.library.begin(conversation)

    async def exists(self, principal: Principal, id_: str) -> Conversation | None:
        """The conversation, if its owner has begun it, or has asked an agent something in it."""
        library = self._exchange.store.library
        if known := await library.conversation(str(principal), id_):
            return known
        runs, _ = await self._exchange.store.list_runs(Listing(str(principal), conversation=id_, limit=1))
        if not runs:
            return None
        return await library.begin(
            Conversation(str(principal), runs[0].conversation, runs[0].agent, runs[0].created_at)
        )
