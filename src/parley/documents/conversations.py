"""Conversations: their messages run by run, their deletion, and their exports (the actions contract, 002)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

import msgspec
from msgspec import UNSET, Raw, Struct

from parley.audit.service import note
from parley.clock import Clock, now_ms
from parley.documents.export.renderer import Cover, ExportedDocument, ExportWriter
from parley.documents.rules import Conversation, DropConversation, Kind
from parley.documents.service import DocumentRequest, Documents
from parley.documents.store import Library
from parley.errors import ConversationBusy, ConversationNotFound, ExportNotFound, Invalid, Outdated, RunEnded
from parley.ids import ConversationId, RunId, is_id, new_conversation_id, new_run_id
from parley.offload import off_loop_bytes
from parley.runs.log import Outcome
from parley.runs.rules.access import Principal
from parley.runs.rules.commands import Cancel
from parley.runs.rules.events import ENDINGS, Completed
from parley.runs.rules.state import FOLD, Run
from parley.runs.rules.transcript import Transcript, TranscriptMessage
from parley.runs.rules.view import snapshot_messages
from parley.runs.service import Exchange
from parley.runs.store import Listing
from parley.runs.streams import PAGE

RUNS = 2000
MESSAGES = 50
VERSIONS = 200
KEEP_MS = 3600 * 1000
GRACE_MS = 5 * 60 * 1000
"""Milliseconds by which the clock of the blob store may be behind the clock of this server."""
PATIENCE_S = 5.0
"""Seconds that the deletion of a conversation waits for its runs to stop, beyond the time limits of their agents."""
EXPORT = "export_conversation"

_KINDS: tuple[tuple[Kind, str], ...] = (("plan", "plans"), ("deliverable", "deliverables"))


class MessagePage(Struct, frozen=True):
    """A page of a conversation's messages, in the order in which they were sent."""

    conversation: Conversation
    last_message_at: int | None
    messages: list[TranscriptMessage]
    total: int
    has_more: bool


class Exported(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An exported file that can be downloaded until it expires."""

    sha256: str
    format: str
    media_type: str
    name: str
    size: int
    message_count: int
    artifacts_included: int
    expires_at: int
    warnings: tuple[str, ...] = ()
    """Sentences about content that could not be shown."""


class Conversations:
    def __init__(
        self,
        exchange: Exchange,
        documents: Documents,
        press: ExportWriter,
        *,
        keep_ms: int = KEEP_MS,
        patience_s: float = PATIENCE_S,
        clock: Clock = now_ms,
    ) -> None:
        self._exchange = exchange
        self._documents = documents
        self._press = press
        self._keep_ms = keep_ms
        self._patience_s = patience_s
        self._clock = clock

    @property
    def _library(self) -> Library:
        return self._exchange.store.library

    async def begin(self, principal: Principal, agent: str, id_: str | None = None) -> tuple[Conversation, bool]:
        """Return the conversation with this id, and whether it is new. Creates it if it does not exist."""
        slug = self._exchange.agent(agent).slug
        if id_ is not None and not is_id(id_):
            raise Invalid("A conversation id must have 1 to 128 letters, digits or ._:@/+=~-", field="id")
        if id_ is not None and (known := await self.exists(principal, id_)):
            return known, False
        id_ = id_ or new_conversation_id()
        return await self._library.begin(Conversation(str(principal), ConversationId(id_), slug, self._clock()))

    async def exists(self, principal: Principal, id_: str) -> Conversation | None:
        """Return the conversation as it was started, or as its first run shows it if only runs of it are known; None if
        there is none."""
        known = await self._library.conversation(str(principal), id_)
        if known is not None or not is_id(id_):
            return known
        async for run in self._runs(str(principal), id_):
            # A run that only records an action, such as the deletion itself, does not start a conversation.
            if run.inputs and run.parent is None:
                begun = Conversation(run.principal, run.conversation, run.agent, run.created_at)
                return (await self._library.begin(begun))[0]
        return None

    async def require(self, principal: Principal, id_: str) -> Conversation:
        """Return the conversation; raise ConversationNotFound if it does not exist."""
        found = await self.exists(principal, id_)
        if found is None:
            raise _missing(id_)
        return found

    async def page(
        self,
        principal: Principal,
        conversation: str,
        limit: int = MESSAGES,
        offset: int = 0,
        *,
        include_system: bool = False,
    ) -> MessagePage:
        """Return a page of messages. Only the logs on that page are read: every run stores its number of messages."""
        begun = await self.require(principal, conversation)
        total, last, shown = 0, 0, list[tuple[Run, int, int]]()
        async for run in self._shown_runs(begun):
            count = _count(run, include_system)
            first, end = max(offset - total, 0), min(offset + limit - total, count)
            if first < end:
                shown.append((run, first, end))
            total, last = total + count, max(last, run.said_at)
        messages = [said for run, first, end in shown for said in await self._some(run, first, end, include_system)]
        return MessagePage(begun, last or None, messages, total, offset + len(messages) < total)

    async def messages(
        self, principal: Principal, conversation: str, *, include_system: bool = False
    ) -> AsyncGenerator[TranscriptMessage, None]:
        """Yield all messages. Memory never holds more than one page of a log and the answer that the page belongs
        to."""
        begun = await self.require(principal, conversation)
        async for run in self._shown_runs(begun):
            async for said in self._said(run, include_system):
                yield said

    async def delete(self, asking: DocumentRequest, *, documents: bool) -> Outcome:
        """Stop active runs, erase the messages, and record the deletion, in this order: if one part fails, the caller
        gets an error and can ask again."""
        if before := await self._before(asking):
            return before
        begun = await self.require(asking.principal, asking.conversation)
        places = [begun.id, *await self._of_steps(begun)]
        counts: dict[str, object] = {"messagesDeleted": await self._erase(begun, asking.principal)}
        if documents:
            counts["artifactsDeleted"] = {name: await self._documents_in(begun, places, kind) for kind, name in _KINDS}
        ends = (DropConversation(begun.principal, one, documents, self._clock()) for one in places)
        try:
            outcome = await self._documents.record(asking, counts, tuple(ends))
        except Outdated:
            raise _missing(begun.id) from None
        note("conversation.deleted", asking.principal, "conversation", begun.id)
        return outcome

    async def export(self, asking: DocumentRequest, format_: str, *, artifacts: bool) -> Outcome:
        """Create the export file, store it, and record where it is."""
        if before := await self._before(asking):
            return before
        renderer = self._press.renderer(format_)
        begun = await self.require(asking.principal, asking.conversation)
        run_id, now = new_run_id(), self._clock()
        cover = Cover(run_id, begun, self._name(begun.agent), now)
        printed = await self._press.print(renderer, cover, self._signed(begun), self._sheets(begun, wanted=artifacts))
        exported = Exported(
            printed.sha256,
            format_,
            printed.media_type,
            printed.name,
            printed.size,
            printed.messages,
            printed.documents,
            now + self._keep_ms,
            printed.warnings,
        )
        outcome = await self._documents.record(asking, msgspec.to_builtins(exported), run_id=run_id)
        note("conversation.exported", asking.principal, "conversation", begun.id)
        return outcome

    def _name(self, slug: str) -> str:
        """Return the agent's display name, or its slug if it is no longer served."""
        agent = self._exchange.agents.get(slug)
        return agent.name if agent else slug

    async def _signed(self, begun: Conversation) -> AsyncGenerator[TranscriptMessage, None]:
        """Yield every message; an agent's messages carry the agent's display name."""
        async for run in self._shown_runs(begun):
            name = self._name(run.agent)
            async for said in self._said(run, include_system=True):
                yield msgspec.structs.replace(said, agent=name) if said.role == "assistant" else said

    async def exported(self, run_id: str) -> Exported:
        """Return the file that an export made. Not limited to its owner: anyone who has the link may download it."""
        for event in await self._exchange.store.read(RunId(run_id), 0, 2) if is_id(run_id) else ():
            if isinstance(event.payload, Completed) and (found := _exported(event.payload)):
                return found
        raise ExportNotFound("The export does not exist, or it has expired.")

    def content(self, exported: Exported) -> AsyncGenerator[bytes, None]:
        return self._press.blobs.stream(exported.sha256)

    async def tidy(self) -> None:
        """Run one cleanup round: the leader deletes files whose links have expired."""
        if self._exchange.membership.leads:
            await self._press.blobs.forget(self._clock() - self._keep_ms - GRACE_MS)

    async def _before(self, asking: DocumentRequest) -> Outcome | None:
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
        """Return the run with its message counts. A row that an older process wrote lacks them; they are in the run's
        head."""
        head = await self._exchange.store.head(run.id) if run.fold != FOLD else None
        return head.run if head is not None else run

    async def _shown_runs(self, begun: Conversation) -> AsyncGenerator[Run, None]:
        """Yield the runs in which the owner takes part, and the steps that write the conversation's documents. Messages
        that agents send each other on the way are not part of the conversation."""
        async for run in self._runs(begun.principal, begun.id):
            if _is_shown(run) and _count(run, include_system=True):
                yield run

    async def _some(self, run: Run, first: int, end: int, include_system: bool) -> list[TranscriptMessage]:
        found: list[TranscriptMessage] = []
        seen = 0
        async with aclosing(self._said(run, include_system)) as messages:
            async for said in messages:
                if seen >= first:
                    found.append(said)
                seen += 1
                if seen == end:
                    break
        return found

    async def _said(self, run: Run, include_system: bool) -> AsyncGenerator[TranscriptMessage, None]:
        own = _is_step(run)
        async for said in self._all_said(run):
            if own and said.role == "user":
                # The orchestration wrote the first input of a step.
                own = False
            elif include_system or said.role != "system":
                yield _of_step(run, said) if _is_step(run) else said

    async def _all_said(self, run: Run) -> AsyncGenerator[TranscriptMessage, None]:
        transcript, cursor = Transcript(), 0
        while events := await self._exchange.store.read(run.id, cursor, PAGE):
            for event in await self._exchange.attachments.told(events) if run.beside else events:
                for said in transcript.feed(event):
                    yield said
            cursor = events[-1].seq
        if not cursor and (head := await self._exchange.store.head(run.id)) and head.snapshot:
            for said in await off_loop_bytes(len(head.snapshot), partial(snapshot_messages, head.snapshot)):
                yield said

    async def _sheets(self, begun: Conversation, *, wanted: bool) -> AsyncGenerator[ExportedDocument, None]:
        for kind, _ in _KINDS if wanted else ():
            found = await self._library.find(begun.principal, begun.id, kind)
            if found is not None and found.document is not None and found.version is not None:
                versions = await self._library.versions(found.document.id, VERSIONS)
                yield ExportedDocument(found.document, found.version, found.content, versions)

    async def _erase(self, begun: Conversation, principal: Principal) -> int:
        """Erase the runs of a conversation. Return the number of messages it had."""
        await self._stop([run async for run in self._runs(begun.principal, begun.id) if not run.ended], principal)
        erased = 0
        async for run in self._runs(begun.principal, begun.id):
            if run.ended:
                erased += _count(run, include_system=True) if _is_shown(run) else 0
                await self._forget(run)
        if (tools := self._exchange.execution.toolcalls) is not None:
            await tools.forget(Principal.parse(begun.principal), begun.id)
        return erased

    async def _of_steps(self, begun: Conversation) -> list[str]:
        """Return the conversations that the steps of its orchestrations have for themselves."""
        runs = [run async for run in self._runs(begun.principal, begun.id) if run.orchestration is not None]
        found: list[str] = []
        while runs:
            for id_ in runs.pop().children:
                head = await self._exchange.store.head(id_)
                if head is not None and head.run.orchestration is not None:
                    runs.append(head.run)
                if await self._library.conversation(begun.principal, id_) is not None:
                    found.append(id_)
        return found

    async def _documents_in(self, begun: Conversation, places: list[str], kind: Kind) -> int:
        """Return the number of documents of a kind in some conversations."""
        found = [await self._library.find(begun.principal, one, kind) for one in places]
        return sum(one is not None and one.document is not None for one in found)

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
        """Cancel the runs, and wait until they have ended."""
        try:
            async with asyncio.timeout(self._patience_s + self._exchange.execution.grace_s):
                await asyncio.gather(*(self._stopped(run, principal) for run in runs))
        except TimeoutError:
            raise ConversationBusy("A task of this conversation has not stopped yet; try again.") from None

    async def _stopped(self, run: Run, principal: Principal) -> None:
        try:
            outcome = await self._exchange.stop(run.id, Cancel(str(principal), "The conversation is being deleted."))
        except RunEnded:
            return
        with await self._exchange.follow(run.id, run.version) as follower:
            ended = outcome.run.ended
            while not ended:
                ended = any(event.type in ENDINGS for event in await follower.next())


def _is_step(run: Run) -> bool:
    """Return whether the run wrote a document as a step of an orchestration."""
    return run.parent is not None and run.assignment is not None and run.assignment.document is not None


def _is_shown(run: Run) -> bool:
    return run.parent is None or _is_step(run)


def _count(run: Run, include_system: bool) -> int:
    """Return the number of messages of a run; the input of a step is not counted."""
    return max(0, run.said - _is_step(run)) + (run.notices if include_system else 0)


def _of_step(run: Run, said: TranscriptMessage) -> TranscriptMessage:
    """Return the message with the name of the step that sent it."""
    assert run.assignment is not None
    about = msgspec.json.decode(run.assignment.metadata)
    step = {name: about[name] for name in ("orchestrationId", "stepId") if name in about}
    metadata = {**msgspec.json.decode(said.metadata), **step}
    return msgspec.structs.replace(said, metadata=Raw(msgspec.json.encode(metadata)))


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
