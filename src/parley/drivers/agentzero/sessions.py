"""One turn over a session: our input as a message in a chat that we name, its log as our progress.

Messages carry ids that say which inputs of which run they hold, and Agent-Zero keeps them in the chat's log. So a turn
that is taken up again finds what was sent, and sends nothing twice.
"""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from msgspec.structs import replace

from parley.core.conversations import Message
from parley.core.events import Failed, Rejected
from parley.core.turns import Done, NeedInput, Note, Output
from parley.drivers.agentzero.client import SessionClient
from parley.drivers.agentzero.files import spoken
from parley.drivers.agentzero.shown import message_id, newest
from parley.drivers.agentzero.watch import FORGOTTEN, SILENT, START_S, Watch, patiently
from parley.drivers.agentzero.wire import Ill
from parley.drivers.agentzero.words import Look
from parley.drivers.remote.patience import Patience
from parley.drivers.remote.words import Lost, Refused
from parley.engine.turns import Turn
from parley.telemetry import tell


class SessionTurn:
    def __init__(self, turn: Turn, client: SessionClient, watch: Watch) -> None:
        self._turn = turn
        self._client = client
        self._options = watch.options
        self._watch = watch
        self._context = turn.notes.get("context", "")
        self._noted = int(turn.notes.get("sent", "0"))
        self._end = turn.offset + len(turn.inputs)
        self._version = 0
        self._guid = ""
        self._runtime = ""

    @property
    def begun(self) -> bool:
        """Whether Agent-Zero has something of this turn."""
        return self._noted > self._turn.offset

    async def outputs(self) -> AsyncGenerator[Output, None]:
        try:
            look = await self._chat()
        except Lost as lost:
            raise Lost(lost.why, unsent=True) from None
        sent, _ = newest(look.items, self._turn.run_id)
        if sent < self._noted:
            yield FORGOTTEN
            return
        self._guid, self._runtime = look.guid, self._client.runtime
        if sent >= self._end:
            self._noted = sent
        else:
            self._version = look.version
            async for output in self._said(max(sent, self._turn.offset)):
                yield output
                if isinstance(output, Rejected):
                    return
        async for output in self._followed():
            yield output

    async def look(self) -> None:
        """Read the chat's log as it is now."""
        if self._context:
            self._heard(await self._client.look(self._context))

    async def _chat(self) -> Look:
        """The conversation's own chat; or one of the run's own, while that one is at work for somebody else."""
        if self._context:
            return await self._looked(self._context)
        turn = self._turn
        self._context = chat_id(turn.agent.slug, str(turn.principal), turn.conversation)
        look = await self._looked(self._context)
        if look.running and not newest(look.items, turn.run_id)[0]:
            self._context = chat_id(turn.agent.slug, str(turn.principal), turn.conversation, turn.run_id)
            look = await self._looked(self._context)
        return look

    async def _looked(self, context: str) -> Look:
        seconds = self._options.patience_s if self._noted else START_S
        return await patiently(seconds, lambda: self._client.look(context))

    async def _said(self, first: int) -> AsyncGenerator[Output, None]:
        """Send the inputs from the first one that Agent-Zero does not have."""
        messages = [await self._loaded(one) for one in self._turn.inputs[first - self._turn.offset :]]
        text, files = spoken(messages, self._turn.run_id)
        if not text:
            yield Rejected("content_not_supported", "There is nothing to answer: the message is blank.")
            return
        yield Note({"context": self._context, "sending": str(self._end), **self._watch.sent()})
        id_ = message_id(self._turn.run_id, first, self._end - 1)
        await self._sent(lambda: self._client.send(self._context, id_, text, files))
        self._runtime = self._client.runtime
        self._noted = self._end
        yield Note({"sent": str(self._end)})

    async def _sent(self, send: Callable[[], Awaitable[None]]) -> None:
        patience = Patience(self._options.patience_s if self._noted else START_S)
        while True:
            try:
                return await send()
            except Lost as error:
                lost = error
            if not lost.unsent and await self._arrived(lost):
                return None
            await patience.wait(lost)

    async def _arrived(self, lost: Lost) -> bool:
        """Whether a message that was not answered for is in the chat. What broke off on the way may still come."""
        patience = Patience(START_S)
        while True:
            look = await self._looked(self._context)
            if newest(look.items, self._turn.run_id)[0] >= self._end:
                return True
            if isinstance(lost, Ill):
                return False
            await patience.wait(lost)

    async def _loaded(self, message: Message) -> Message:
        return replace(message, parts=await self._turn.loaded(message.parts))

    async def _followed(self) -> AsyncGenerator[Output, None]:
        watch, patience = self._watch, Patience(self._options.patience_s)
        while True:
            try:
                look = await self._client.look(self._context, self._version)
            except Lost as lost:
                watch.shaken = True
                await patience.wait(lost)
                continue
            patience.renew()
            watch.shaken |= self._client.runtime != self._runtime
            if not look.known:
                yield FORGOTTEN
                return
            if self._was_written_anew(look):
                continue
            for output in self._heard(look):
                yield output
            ending = watch.reported() if look.running else watch.ended(watch.course.response)
            async for output in ending:
                if isinstance(output, NeedInput) and look.running:
                    await self._stood_still()
                yield output
                if isinstance(output, NeedInput | Failed):
                    return
            if not look.running:
                return
            if self._turn.overtaken.is_set():
                # There is input to read: the next turn brings it into the chat, where the work goes on meanwhile.
                yield Done()
                return
            if watch.is_silent:
                yield SILENT
                return
            await watch.wait()

    async def _stood_still(self) -> None:
        """Whoever asks for guidance goes on when it comes. The question stands also if it will not stand still."""
        try:
            await self._client.pause(self._context)
        except (Lost, Refused) as error:
            tell("agentzero.not_paused", run=self._turn.run_id, agent=self._turn.agent.slug, why=str(error))

    def _was_written_anew(self, look: Look) -> bool:
        """After a restart a log has other versions, and after a reset another name."""
        anew = bool(self._guid and look.guid != self._guid) or look.version < self._version
        self._guid = look.guid
        if anew:
            self._watch.shaken, self._version = True, 0
            self._watch.course.forget()
        return anew

    def _heard(self, look: Look) -> Sequence[Output]:
        course = self._watch.course
        course.mine = max(course.mine, newest(look.items, self._turn.run_id)[1])
        if look.version != self._version:
            self._watch.stirred()
        self._version = look.version
        return course.heard(look.items)


def chat_id(*of: str) -> str:
    """Nobody else comes to the same chat by naming the same conversation. It is the name of a folder over there."""
    return hashlib.sha256("\0".join(of).encode()).hexdigest()[:20]
