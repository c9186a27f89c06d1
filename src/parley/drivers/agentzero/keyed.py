"""One turn with an API key: our input as a call that is answered when the work is done.

Agent-Zero chooses the chat and names it only in its answer. So of a conversation's first message nothing can be seen
before that but SALUTE reports, and after a crash it cannot be found again; of later ones the chat's log is read.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from parley.core.conversations import Message
from parley.core.events import Failed, Rejected
from parley.core.turns import Done, NeedInput, Note, Output
from parley.drivers.agentzero.client import KeyClient
from parley.drivers.agentzero.files import spoken
from parley.drivers.agentzero.watch import FORGOTTEN, SILENT, START_S, Watch, patiently
from parley.drivers.agentzero.words import Answer, File, Item, Look
from parley.drivers.remote.patience import Patience
from parley.drivers.remote.words import Lost, Refused
from parley.engine.turns import Turn

UNFOUND = Failed(
    "agentzero_lost",
    "The connection to Agent-Zero was lost while it worked; with an API key there is no way to find the work again.",
)


class KeyTurn:
    def __init__(self, turn: Turn, client: KeyClient, watch: Watch) -> None:
        self._turn = turn
        self._client = client
        self._options = watch.options
        self._watch = watch
        self._context = turn.notes.get("context", "")
        self._asked = int(turn.notes.get("sending", "0"))
        self._items = int(turn.notes.get("items", "0"))
        """How long the chat's log was before the last message."""
        self._end = turn.offset + len(turn.inputs)
        self._call: asyncio.Task[Answer] | None = None

    @property
    def begun(self) -> bool:
        return self._asked > self._turn.offset

    async def outputs(self) -> AsyncGenerator[Output, None]:
        if not await self._is_there():
            yield UNFOUND if not self._context else FORGOTTEN
            return
        try:
            async for output in self._said():
                yield output
                if isinstance(output, Rejected):
                    return
            async for output in self._followed():
                yield output
        finally:
            await self._hung_up()

    async def look(self) -> None:
        """Read the chat's log as it is now, where Agent-Zero has named the chat."""
        if self._context:
            self._heard(await self._client.look(self._context))

    async def _is_there(self) -> bool:
        """Whether Agent-Zero still has what it was given of this run; and which chat is used where it has nothing."""
        mine = bool(self._context) or self.begun
        if not self._context and not self.begun:
            self._context = (await self._turn.earlier_notes()).get("context", "")
        if not self._context:
            return not self.begun
        look = await self._looked()
        if look.known:
            self._arrived(look)
        elif not mine:
            self._context = ""
        return look.known or not mine

    def _arrived(self, look: Look) -> None:
        """Whether a message that was on its way when a turn was broken off is in the log."""
        if not self.begun:
            self._items = look.version
        elif not _users(look.items, self._items):
            self._asked = self._turn.offset

    async def _looked(self) -> Look:
        try:
            return await patiently(
                self._options.patience_s if self.begun else START_S, lambda: self._client.look(self._context)
            )
        except Lost as lost:
            raise Lost(lost.why, unsent=True) from None

    async def _said(self) -> AsyncGenerator[Output, None]:
        first = max(self._asked, self._turn.offset)
        if first >= self._end:
            return
        messages = [await self._loaded(one) for one in self._turn.inputs[first - self._turn.offset :]]
        text, files = spoken(messages, self._turn.run_id)
        if not text:
            yield Rejected("content_not_supported", "There is nothing to answer: the message is blank.")
            return
        noted = {"context": self._context, "sending": str(self._end), "items": str(self._items)}
        yield Note({**noted, **self._watch.sent()})
        self._asked = self._end
        self._call = asyncio.get_running_loop().create_task(self._answer(text, files))

    async def _answer(self, text: str, files: Sequence[File]) -> Answer:
        patience = Patience(START_S)
        while True:
            try:
                return await self._client.ask(self._context, text, files)
            except Lost as lost:
                if not lost.unsent:
                    raise
                await patience.wait(lost)

    async def _loaded(self, message: Message) -> Message:
        return replace(message, parts=await self._turn.loaded(message.parts))

    async def _followed(self) -> AsyncGenerator[Output, None]:
        watch = self._watch
        while True:
            await self._waited()
            if (call := self._call) is not None and call.done():
                self._call = None
                async for output in self._answered(call):
                    yield output
                if not watch.shaken:
                    return
            if self._context:
                look = await patiently(self._options.patience_s, lambda: self._client.look(self._context))
                if not look.known:
                    yield FORGOTTEN
                    return
                for output in self._heard(look):
                    yield output
                if self._call is None and not look.running:
                    async for output in watch.ended(watch.course.response):
                        yield output
                    return
                if self._turn.overtaken.is_set():
                    yield Done()
                    return
            async for output in watch.reported(may_ask=bool(self._context)):
                yield output
                if isinstance(output, NeedInput | Failed):
                    return
            if watch.is_silent:
                yield SILENT
                return

    async def _answered(self, call: asyncio.Task[Answer]) -> AsyncGenerator[Output, None]:
        """The end of the work; or, where the connection broke, a reason to look for it in the log."""
        try:
            answer = call.result()
        except Refused as refused:
            if refused.kind != "over":
                raise
            yield self._watch.failed(refused.words)
            return
        except Lost as lost:
            if not self._context or lost.unsent:
                raise
            self._watch.shaken = True
            return
        yield Note({"context": answer.context_id, "sent": str(self._end)})
        async for output in self._watch.ended(answer.response or None):
            yield output

    async def _waited(self) -> None:
        if self._call is None:
            return await self._watch.wait()
        waiting = asyncio.get_running_loop().create_task(self._watch.wait())
        await asyncio.wait((self._call, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return None

    def _heard(self, look: Look) -> Sequence[Output]:
        course = self._watch.course
        course.mine = max([course.mine, *_users(look.items, self._items)])
        if any(course.items.get(item.no) != item for item in look.items):
            self._watch.stirred()
        return course.heard(look.items)

    async def _hung_up(self) -> None:
        if self._call is not None and not self._call.done():
            self._call.cancel()
            with suppress(asyncio.CancelledError, Lost, Refused):
                await self._call


def _users(items: Sequence[Item], after: int) -> list[int]:
    return [item.no for item in items if item.type == "user" and item.no >= after]
