"""Conversations: what was said in them, run by run; how they end; and what is carried away of them (contract 002)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

import msgspec
from msgspec import UNSET, Struct

from parley.clock import Clock, now_ms
from parley.core.access import Principal
from parley.core.commands import Cancel
from parley.core.documents import Conversation, DropConversation, Kind
from parley.core.events import ENDINGS, Completed
from parley.core.runs import FOLD, Run
from parley.core.transcripts import Said, Transcript
from parley.core.views import talk_in
from parley.engine.commands import Outcome
from parley.engine.documents import Asking, Documents
from parley.engine.exchange import Exchange
from parley.engine.export import Cover, Press, Sheet
from parley.engine.offload import off_loop_bytes
from parley.engine.ports import Library, Listing
from parley.engine.streams import PAGE
from parley.errors import ConversationBusy, ConversationNotFound, ExportNotFound, Invalid, Outdated, RunEnded
from parley.ids import ConversationId, RunId, is_id, new_conversation_id, new_run_id

RUNS = 2000
MESSAGES = 50
VERSIONS = 200
KEEP_MS = 3600 * 1000
GRACE_MS = 5 * 60 * 1000
"""How far the clock of whoever keeps the files may be behind ours."""
PATIENCE_S = 5.0
"""How much longer than their agents may take a conversation waits for its runs to stop."""
EXPORT = "export_conversation"

_KINDS: tuple[tuple[Kind, str], ...] = (("plan", "plans"), ("deliverable", "deliverables"))


class Page(Struct, frozen=True):
    """Some messages of a conversation, in the order in which they were said."""

    conversation: Conversation
    last_message_at: int | None
    messages: list[Said]
    total: int
    has_more: bool


class Exported(Struct, frozen=True, rename="camel"):
    """A file that somebody may fetch until it expires."""

    sha256: str
    format: str
    media_type: str
    name: str
    size: int
    message_count: int
    artifacts_included: int
    expires_at: int


class Conversations:
    def __init__(
        self, exchange: Exchange, documents: Documents, press: Press, *, keep_ms: int = KEEP_MS,
        patience_s: float = PATIENCE_S, clock: Clock = now_ms,
    ) -> None:  # fmt: skip
        self._exchange = exchange
        self._documents = documents
        self._press = press
        self._keep_ms = keep_ms
        self._patience_s = patience_s
        self._clock = clock

    @property
    def _library(self) -> Library:
        return self._exchange.store.library

    async def begin(self, principal: Principal, agent: str, id_: str | None = None) -> Conversation:
        """A conversation of this name, which may be there already."""
        slug = self._exchange.agent(agent).slug
        if id_ is not None and not is_id(id_):
            raise Invalid("A conversation id has 1 to 128 letters, digits or ._:@/+=~-", field="id")
        if id_ is not None and (known := await self.exists(principal, id_)):
            return known
        id_ = id_ or new_conversation_id()
        return await self._library.begin(Conversation(str(principal), ConversationId(id_), slug, self._clock()))

    async def exists(self, principal: Principal, id_: str) -> Conversation | None:
        """As it was begun; or by its first run, if it is known from those alone."""
        known = await self._library.conversation(str(principal), id_)
        if known is not None or not is_id(id_):
            return known
        async for run in self._runs(str(principal), id_):
            # What only records that something was done, such as the deletion itself, begins nothing.
            if run.inputs and run.parent is None:
                begun = Conversation(run.principal, run.conversation, run.agent, run.created_at)
                return await self._library.begin(begun)
        return None

    async def page(
        self, principal: Principal, conversation: str, limit: int = MESSAGES, offset: int = 0, *,
        include_system: bool = False,
    ) -> Page:  # fmt: skip
        """Only the logs that are shown are read: every run knows how much was said in it."""
        begun = await self._known(principal, conversation)
        total, last, shown = 0, 0, list[tuple[Run, int, int]]()
        async for run in self._talks(begun):
            count = _count(run, include_system)
            first, end = max(offset - total, 0), min(offset + limit - total, count)
            if first < end:
                shown.append((run, first, end))
            total, last = total + count, max(last, run.said_at)
        messages = [said for run, first, end in shown for said in await self._some(run, first, end, include_system)]
        return Page(begun, last or None, messages, total, offset + len(messages) < total)

    async def messages(
        self, principal: Principal, conversation: str, *, include_system: bool = False
    ) -> AsyncGenerator[Said, None]:
        """All of them; in memory is never more than a page of a log and the answer that it is about."""
        begun = await self._known(principal, conversation)
        async for run in self._talks(begun):
            async for said in self._said(run, include_system):
                yield said

    async def delete(self, asking: Asking, *, documents: bool) -> Outcome:
        """Stop what is under way, erase what was said, and record that, in this order: what has not been told as done
        can be asked for again."""
        if before := await self._before(asking):
            return before
        begun = await self._known(asking.principal, asking.conversation)
        counts: dict[str, object] = {"messagesDeleted": await self._erase(begun, asking.principal)}
        if documents:
            counts["artifactsDeleted"] = {
                name: int(found is not None and found.document is not None)
                for kind, name in _KINDS
                for found in [await self._library.find(begun.principal, begun.id, kind)]
            }
        end = DropConversation(begun.principal, begun.id, documents, self._clock())
        try:
            return await self._documents.record(asking, counts, (end,))
        except Outdated:
            raise _missing(begun.id) from None

    async def export(self, asking: Asking, format_: str, *, artifacts: bool) -> Outcome:
        """Make the file, keep it, and record where it is."""
        if before := await self._before(asking):
            return before
        renderer = self._press.renderer(format_)
        begun = await self._known(asking.principal, asking.conversation)
        run_id, now = new_run_id(), self._clock()
        cover = Cover(run_id, begun, self._name(begun.agent), now)
        printed = await self._press.print(renderer, cover, self._signed(begun), self._sheets(begun, wanted=artifacts))
        exported = Exported(
            printed.sha256, format_, printed.media_type, printed.name, printed.size, printed.messages,
            printed.documents, now + self._keep_ms,
        )  # fmt: skip
        return await self._documents.record(asking, msgspec.to_builtins(exported), run_id=run_id)

    def _name(self, slug: str) -> str:
        """As people know the agent; its slug, if it is served no longer."""
        agent = self._exchange.agents.get(slug)
        return agent.name if agent else slug

    async def _signed(self, begun: Conversation) -> AsyncGenerator[Said, None]:
        """Every message, the agents' with their names."""
        async for run in self._talks(begun):
            name = self._name(run.agent)
            async for said in self._said(run, include_system=True):
                yield msgspec.structs.replace(said, agent=name) if said.role == "assistant" else said

    async def exported(self, run_id: str) -> Exported:
        """What an export has made, for whoever has a link to it."""
        for event in await self._exchange.store.read(RunId(run_id), 0, 2) if is_id(run_id) else ():
            if isinstance(event.payload, Completed) and (found := _exported(event.payload)):
                return found
        raise ExportNotFound("There is no such export, or no longer.")

    def content(self, exported: Exported) -> AsyncGenerator[bytes, None]:
        return self._press.blobs.stream(exported.sha256)

    async def tidy(self) -> None:
        """One round: the leader forgets the files whose links have expired."""
        if self._exchange.membership.leads:
            await self._press.blobs.forget(self._clock() - self._keep_ms - GRACE_MS)

    async def _known(self, principal: Principal, conversation: str) -> Conversation:
        found = await self.exists(principal, conversation)
        if found is None:
            raise _missing(conversation)
        return found

    async def _before(self, asking: Asking) -> Outcome | None:
        return await self._exchange.commands.replayed(asking.once) if asking.once else None

    async def _runs(self, principal: str, conversation: str) -> AsyncGenerator[Run, None]:
        listing = Listing(principal=principal, conversation=conversation, oldest=True, counted=False, limit=RUNS)
        while True:
            runs, _ = await self._exchange.store.list_runs(listing)
            for run in runs:
                yield await self._whole(run)
            if len(runs) < RUNS:
                return
            listing = msgspec.structs.replace(listing, after=(runs[-1].created_at, runs[-1].id))

    async def _whole(self, run: Run) -> Run:
        """A row that an older process wrote does not know what was said in it; its head does."""
        head = await self._exchange.store.head(run.id) if run.fold != FOLD else None
        return head.run if head is not None else run

    async def _talks(self, begun: Conversation) -> AsyncGenerator[Run, None]:
        """The runs in which its owner speaks. What agents ask each other on the way is no part of the conversation."""
        async for run in self._runs(begun.principal, begun.id):
            if run.parent is None and run.said + run.notices:
                yield run

    async def _some(self, run: Run, first: int, end: int, include_system: bool) -> list[Said]:
        found: list[Said] = []
        seen = 0
        async with aclosing(self._said(run, include_system)) as messages:
            async for said in messages:
                if seen >= first:
                    found.append(said)
                seen += 1
                if seen == end:
                    break
        return found

    async def _said(self, run: Run, include_system: bool) -> AsyncGenerator[Said, None]:
        async for said in self._all_said(run):
            if include_system or said.role != "system":
                yield said

    async def _all_said(self, run: Run) -> AsyncGenerator[Said, None]:
        transcript, cursor = Transcript(), 0
        while events := await self._exchange.store.read(run.id, cursor, PAGE):
            for event in await self._exchange.attachments.told(events) if run.beside else events:
                for said in transcript.feed(event):
                    yield said
            cursor = events[-1].seq
        if not cursor and (head := await self._exchange.store.head(run.id)) and head.snapshot:
            for said in await off_loop_bytes(len(head.snapshot), partial(talk_in, head.snapshot)):
                yield said

    async def _sheets(self, begun: Conversation, *, wanted: bool) -> AsyncGenerator[Sheet, None]:
        for kind, _ in _KINDS if wanted else ():
            found = await self._library.find(begun.principal, begun.id, kind)
            if found is not None and found.document is not None and found.version is not None:
                versions = await self._library.versions(found.document.id, VERSIONS)
                yield Sheet(found.document, found.version, found.content, versions)

    async def _erase(self, begun: Conversation, principal: Principal) -> int:
        """How many messages there were."""
        await self._stop([run async for run in self._runs(begun.principal, begun.id) if not run.ended], principal)
        erased = 0
        async for run in self._runs(begun.principal, begun.id):
            if run.ended:
                erased += _count(run, True) if run.parent is None else 0
                await self._forget(run)
        if (tools := self._exchange.execution.toolcalls) is not None:
            await tools.forget(Principal.parse(begun.principal), begun.id)
        return erased

    async def _forget(self, run: Run) -> None:
        if run.assignment is not None and run.assignment.action == EXPORT:
            try:
                await self._press.blobs.delete((await self.exported(run.id)).sha256)
            except ExportNotFound:
                pass
        await self._exchange.retention.erase(run.id)
        if (tools := self._exchange.execution.toolcalls) is not None:
            await tools.forget_steps(run)

    async def _stop(self, runs: list[Run], principal: Principal) -> None:
        """Cancel them, and wait until they have ended."""
        try:
            async with asyncio.timeout(self._patience_s + self._exchange.execution.grace_s):
                await asyncio.gather(*(self._stopped(run, principal) for run in runs))
        except TimeoutError:
            raise ConversationBusy("A task of this conversation has not stopped yet; try again.") from None

    async def _stopped(self, run: Run, principal: Principal) -> None:
        try:
            outcome = await self._exchange.stop(run.id, Cancel(str(principal), "Its conversation is being deleted."))
        except RunEnded:
            return
        with await self._exchange.follow(run.id, run.version) as follower:
            ended = outcome.run.ended
            while not ended:
                ended = any(event.type in ENDINGS for event in await follower.next())


def _count(run: Run, include_system: bool) -> int:
    return run.said + (run.notices if include_system else 0)


def _exported(completed: Completed) -> Exported | None:
    for part in completed.parts:
        if part.data is not UNSET:
            try:
                return msgspec.json.decode(part.data, type=Exported)
            except msgspec.MsgspecError:
                return None
    return None


def _missing(conversation: str) -> ConversationNotFound:
    return ConversationNotFound("There is no such conversation.", conversation=conversation)
