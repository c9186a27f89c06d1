"""One turn with Agent-Zero: as a message in a chat over a session, or as one call with an API key."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from parley.drivers.agentzero.chat import ChatAnswer, ChatFile, ChatItem, Look, message_id, newest, spoken
from parley.drivers.agentzero.client import Ill, KeyClient, SessionClient
from parley.drivers.agentzero.watch import FORGOTTEN, SILENT, START_S, Hung, Watch, answered, patiently
from parley.drivers.remote.connections import Backoff
from parley.drivers.remote.translation import ConnectionLost, RemoteRefused
from parley.execution.rules import Done, NeedInput, Note, Output
from parley.execution.turn import Turn
from parley.runs.rules.content import Message
from parley.runs.rules.events import Failed, Rejected
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
        """True if Agent-Zero has received an input of this turn."""
        return self._noted > self._turn.offset

    async def outputs(self) -> AsyncGenerator[Output, None]:
        try:
            look = await self._chat()
        except ConnectionLost as lost:
            raise ConnectionLost(lost.why, unsent=True) from None
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
        """Read the current log of the chat."""
        if self._context:
            self._outputs_of(await self._client.look(self._context))

    async def _chat(self) -> Look:
        """Return the conversation's chat; or a chat of the run's own while that chat works for another run."""
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
        options = self._options
        seconds, most = (options.patience_s, None) if self._noted else (START_S, max(START_S, options.timeout_s))
        return await patiently(seconds, lambda: self._client.look(context), most)

    async def _said(self, first: int) -> AsyncGenerator[Output, None]:
        """Send the inputs that Agent-Zero does not have yet, starting at `first`."""
        messages = [await self._loaded(one) for one in self._turn.inputs[first - self._turn.offset :]]
        text, files = spoken(messages, self._turn.run_id)
        if not text:
            yield Rejected("content_not_supported", "The message is blank. Send some text or a file.")
            return
        yield Note({"context": self._context, "sending": str(self._end), **self._watch.sent()})
        id_ = message_id(self._turn.run_id, first, self._end - 1)
        await self._sent(lambda: self._client.send(self._context, id_, text, files))
        self._runtime = self._client.runtime
        self._noted = self._end
        yield Note({"sent": str(self._end)})

    async def _sent(self, send: Callable[[], Awaitable[None]]) -> None:
        patience = Backoff(self._options.patience_s if self._noted else START_S)
        while True:
            try:
                return await send()
            except ConnectionLost as error:
                lost = error
            if not lost.unsent and await self._arrived(lost):
                return None
            await patience.wait(lost)

    async def _arrived(self, lost: ConnectionLost) -> bool:
        """Tell whether a message without an answer is in the chat. An interrupted message may still arrive later."""
        patience = Backoff(START_S)
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
        watch, patience = self._watch, Backoff(self._options.patience_s)
        clock, until = asyncio.get_running_loop().time, 0.0
        while True:
            until = until or clock() + self._options.patience_s
            try:
                look = await answered(lambda: self._client.look(self._context, self._version), until)
            except Hung:
                raise
            except ConnectionLost as lost:
                watch.shaken = True
                await patience.wait(lost)
                continue
            patience.renew()
            until = 0.0
            watch.shaken |= self._client.runtime != self._runtime
            if not look.known:
                yield FORGOTTEN
                return
            if self._was_written_anew(look):
                continue
            for output in self._outputs_of(look):
                yield output
            ending = watch.reported() if look.running else watch.ended(watch.course.response)
            async for output in ending:
                if isinstance(output, NeedInput) and look.running:
                    await self._pause_chat()
                yield output
                if isinstance(output, NeedInput | Failed):
                    return
            if not look.running:
                return
            if self._turn.overtaken.is_set():
                # New input has arrived: the next turn sends it to the chat, where the work continues in the meantime.
                yield Done()
                return
            if watch.is_silent:
                yield SILENT
                return
            await watch.wait()

    async def _pause_chat(self) -> None:
        """Pause the chat until the guidance it asked for arrives. The question is asked even if the pause fails."""
        try:
            await self._client.pause(self._context)
        except (ConnectionLost, RemoteRefused) as error:
            tell("agentzero.not_paused", run=self._turn.run_id, agent=self._turn.agent.slug, why=str(error))

    def _was_written_anew(self, look: Look) -> bool:
        """Tell whether the log was rewritten: a restart changes its versions, a reset changes its guid."""
        anew = bool(self._guid and look.guid != self._guid) or look.version < self._version
        self._guid = look.guid
        if anew:
            self._watch.shaken, self._version = True, 0
            self._watch.course.forget()
        return anew

    def _outputs_of(self, look: Look) -> Sequence[Output]:
        course = self._watch.course
        course.mine = max(course.mine, newest(look.items, self._turn.run_id)[1])
        if look.version != self._version:
            self._watch.record_activity()
        self._version = look.version
        return course.heard(look.items)


def chat_id(*of: str) -> str:
    """Return the id of a chat. It is a digest, so that callers who name the same conversation do not share a chat, and
    so that it is a valid folder name in Agent-Zero."""
    return hashlib.sha256("\0".join(of).encode()).hexdigest()[:20]


# One turn with an API key: our input as a call that is answered when the work is done.
#
# Agent-Zero chooses the chat and returns its id only with the answer. So until the first message of a conversation is
# answered, only SALUTE reports show progress, and after a crash the work cannot be found again. For later messages the
# chat's log is read.

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
        """Length of the chat's log before the last message."""
        self._end = turn.offset + len(turn.inputs)
        self._call: asyncio.Task[ChatAnswer] | None = None

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
            await self._cancel_call()

    async def look(self) -> None:
        """Read the current log of the chat, if its id is known."""
        if self._context:
            self._outputs_of(await self._client.look(self._context))

    async def _is_there(self) -> bool:
        """Tell whether Agent-Zero still has the inputs of this run. If it has none, choose the chat to use."""
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
        """Check whether a message that was being sent when a turn was interrupted is in the log. If not, it counts as
        not sent."""
        if not self.begun:
            self._items = look.version
        elif not _users(look.items, self._items):
            self._asked = self._turn.offset

    async def _looked(self) -> Look:
        try:
            options = self._options
            seconds, most = (options.patience_s, None) if self.begun else (START_S, max(START_S, options.timeout_s))
            return await patiently(seconds, lambda: self._client.look(self._context), most)
        except ConnectionLost as lost:
            raise ConnectionLost(lost.why, unsent=True) from None

    async def _said(self) -> AsyncGenerator[Output, None]:
        first = max(self._asked, self._turn.offset)
        if first >= self._end:
            return
        messages = [await self._loaded(one) for one in self._turn.inputs[first - self._turn.offset :]]
        text, files = spoken(messages, self._turn.run_id)
        if not text:
            yield Rejected("content_not_supported", "The message is blank. Send some text or a file.")
            return
        noted = {"context": self._context, "sending": str(self._end), "items": str(self._items)}
        yield Note({**noted, **self._watch.sent()})
        self._asked = self._end
        self._call = asyncio.get_running_loop().create_task(self._answer(text, files))

    async def _answer(self, text: str, files: Sequence[ChatFile]) -> ChatAnswer:
        patience = Backoff(START_S)
        while True:
            try:
                return await self._client.ask(self._context, text, files)
            except ConnectionLost as lost:
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
                for output in self._outputs_of(look):
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

    async def _answered(self, call: asyncio.Task[ChatAnswer]) -> AsyncGenerator[Output, None]:
        """Yield the end of the work. If the connection broke, look for the end in the log instead."""
        try:
            answer = call.result()
        except RemoteRefused as refused:
            if refused.kind != "over":
                raise
            yield self._watch.failed(refused.words)
            return
        except ConnectionLost as lost:
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

    def _outputs_of(self, look: Look) -> Sequence[Output]:
        course = self._watch.course
        course.mine = max([course.mine, *_users(look.items, self._items)])
        if any(course.items.get(item.no) != item for item in look.items):
            self._watch.record_activity()
        return course.heard(look.items)

    async def _cancel_call(self) -> None:
        if self._call is not None and not self._call.done():
            self._call.cancel()
            with suppress(asyncio.CancelledError, ConnectionLost, RemoteRefused):
                await self._call


def _users(items: Sequence[ChatItem], after: int) -> list[int]:
    return [item.no for item in items if item.type == "user" and item.no >= after]
