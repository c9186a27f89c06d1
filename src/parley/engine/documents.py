"""Plans and deliverables: what may be asked of them. What changes one is a run, written together with the change."""

import hashlib
from collections.abc import Callable, Sequence

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from parley.clock import Clock, iso, now_ms
from parley.core.access import Principal
from parley.core.artifacts import Artifact, Part, Parts, text_of
from parley.core.commands import Start
from parley.core.conversations import SAMPLING, Message
from parley.core.documents import (
    AddVersion,
    Assignment,
    Change,
    Document,
    DropDocument,
    DropVersion,
    Kind,
    PointTo,
    Provenance,
    Version,
    content_of,
    heading_of,
    merged_format,
    metadata_with,
    title_of,
    type_of,
)
from parley.core.drafting import NOTHING_SAID, again, draft, merge, rework
from parley.core.events import RESPONSE, Completed, Event, InputReceived
from parley.core.runs import Run
from parley.core.views import View
from parley.engine.commands import Outcome
from parley.engine.exchange import Exchange
from parley.engine.ports import Found, Key, Library, Sampled
from parley.engine.requests import keyed
from parley.engine.views import read_view
from parley.errors import (
    ConversationNotFound,
    CurrentVersion,
    DocumentNotFound,
    DocumentVersionNotFound,
    Invalid,
    Outdated,
)
from parley.ids import ConversationId, RunId, new_id, new_run_id

MAX_TRIES = 50


class Asking(Struct, frozen=True):
    """Who asks for what, where; `body` is what a repetition with the same key has to say again."""

    principal: Principal
    conversation: str
    agent: str
    mode: str
    action: str
    key: str | None = None
    body: bytes = b""
    run: RunId | None = None
    """The run that it becomes, where that is known before, and for which one: a step of an orchestration."""
    parent: RunId | None = None

    @property
    def once(self) -> Key | None:
        asked = [self.mode, self.action, self.conversation, hashlib.sha256(self.body).hexdigest()]
        return keyed(self.key, self.principal, self.agent, list[object](asked))


class Drawing(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """How a model is to be asked this once; None leaves it as its agent is defined."""

    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None


class Documents:
    def __init__(self, exchange: Exchange, clock: Clock = now_ms) -> None:
        self._exchange = exchange
        self._clock = clock
        exchange.commands.fulfil = self.fulfil

    @property
    def library(self) -> Library:
        return self._exchange.store.library

    async def find(self, principal: Principal, conversation: str, kind: Kind, version: str | None = None) -> Found:
        """The document of a conversation and its current version, or another; whatever of them there is."""
        found = await self.library.find(str(principal), conversation, kind, version)
        if found is None:
            raise ConversationNotFound("There is no such conversation.", conversation=conversation)
        return found

    async def outliving(self, principal: Principal, kind: Kind, version: str) -> Found | None:
        """A version of a document that was kept when its conversation was deleted; only for its owner."""
        found = await self.library.version(version)
        if found is None or found.document is None or found.document.conversation:
            return None
        return found if (found.document.principal, found.document.kind) == (str(principal), kind) else None

    async def versions(
        self, principal: Principal, conversation: str, kind: Kind, limit: int, offset: int = 0
    ) -> tuple[Document, list[Version]]:
        """Newest first; the document says how many there are."""
        document = _there(await self.find(principal, conversation, kind), kind)
        return document, await self.library.versions(document.id, limit, offset)

    async def made(self, run: Run) -> Found | None:
        """The version that came of a run, if it is still there."""
        return await self.library.version(run.id)

    async def create(
        self, asking: Asking, kind: Kind, message: str, *, force_new: bool = False, plan: str | None = None
    ) -> Outcome:
        """Ask the agent for the next version. `force_new` shows it nothing of the current one; a deliverable is made
        from the plan's current version, or from the one named `plan`."""
        if before := await self.before(asking):
            return before
        current = await self.find(asking.principal, asking.conversation, kind)
        shown = current.content if current.document is not None and not force_new else None
        followed = await self._plan(asking, plan) if kind == "deliverable" else None
        if not message and followed is None:
            raise Invalid("Say what to write, or write a plan first.", field="message")
        about: dict[str, object] = {"planVersionId": followed.version.id} if followed and followed.version else {}
        parts = draft(kind, message, shown, followed.content if followed else None)
        assignment = _assignment(asking, kind, "conversation_task", message or NOTHING_SAID[kind], about)
        return await self._ask(asking, replace(assignment, anew=force_new), parts)

    async def merge(
        self, asking: Asking, kind: Kind, versions: Sequence[str], prompt: str, how: Drawing | None = None
    ) -> Outcome:
        if before := await self.before(asking):
            return before
        if len(set(versions)) < 2 or len(set(versions)) < len(versions):
            raise Invalid("Name at least two different versions.", field="versionIds")
        found = [await self._version(asking, kind, id_) for id_ in versions]
        chosen = [(one.version, one.content) for one in found if one.version is not None]
        about: dict[str, object] = {"mergedFrom": list(versions), "mergePrompt": prompt}
        assignment = _assignment(asking, kind, "merge_operation", prompt, about)
        assignment = replace(assignment, format=merged_format(version.format for version, _ in chosen), history=0)
        return await self._ask(asking, assignment, merge(kind, chosen, prompt), how)

    async def rerun(
        self, asking: Asking, kind: Kind, source: str | None, how: Drawing | None, message: str | None
    ) -> Outcome:
        """Ask again for what a version was made of, with the history its agent was shown; for one that a person wrote,
        show its content alone."""
        if before := await self.before(asking):
            return before
        found = await self._version(asking, kind, source)
        assert found.version is not None
        source_run, asked = await self._asked_for(RunId(found.version.id))
        parts = again(asked, message) if asked else rework(kind, found.content, message)
        made_for = source_run.assignment if source_run is not None and asked else None
        about: dict[str, object] = {"rerunFrom": found.version.id, "rerunConfig": how or Drawing()}
        title = found.document.title if found.document else ""
        assignment = replace(
            _assignment(asking, kind, "llm_rerun", title, about),
            format=found.version.format,
            anew=made_for is not None and made_for.anew,
            history=_history_of(source_run) if source_run is not None and asked else 0,
        )
        return await self._ask(asking, assignment, parts, how)

    async def edit(self, asking: Asking, kind: Kind, content: str, notes: str | None = None) -> Outcome:
        if before := await self.before(asking):
            return before
        current = await self._version(asking, kind, None)
        assert current.version is not None
        about: dict[str, object] = {"editedFromVersionId": current.version.id, "editedAt": iso(self._clock())}
        if notes is not None:
            about["editNotes"] = notes
        return await self._write(asking, kind, content, current.version.format, "manual_edit", about)

    async def copy(self, asking: Asking, kind: Kind, version: str, *, current: bool = False) -> Outcome:
        if before := await self.before(asking):
            return before
        source = await self._version(asking, kind, version)
        assert source.version is not None
        about: dict[str, object] = {"copiedFrom": version, "originalVersionNumber": source.version.number}
        return await self._write(
            asking, kind, source.content, source.version.format, "copy_operation", about, current=current
        )

    async def point(self, asking: Asking, kind: Kind, version: str) -> Outcome:
        """Let another version hold. To choose the one that does changes nothing, and succeeds."""

        def decided(found: Found, at: int) -> tuple[Change, dict[str, object]]:
            document = _there(found, kind)
            _named(found, version)
            said: dict[str, object] = {
                "document": document.id,
                "previous": document.current,
                "version": version,
                "at": at,
            }
            return PointTo(document.id, document.revision, version, at, heading_of(found.content)), said

        return await self._decide(asking, kind, version, decided)

    async def drop_version(self, asking: Asking, kind: Kind, version: str) -> Outcome:
        def decided(found: Found, at: int) -> tuple[Change, dict[str, object]]:
            document = _there(found, kind)
            _named(found, version)
            if document.current == version:
                raise CurrentVersion("The current version cannot be deleted; make another one current first.")
            said: dict[str, object] = {"document": document.id, "version": version, "remaining": document.versions - 1}
            return DropVersion(document.id, document.revision, version, at), said

        return await self._decide(asking, kind, version, decided)

    async def drop(self, asking: Asking, kind: Kind) -> Outcome:
        def decided(found: Found, at: int) -> tuple[Change, dict[str, object]]:
            document = _there(found, kind)
            said: dict[str, object] = {"document": document.id, "versions": document.versions}
            return DropDocument(document.id, document.revision), said

        return await self._decide(asking, kind, None, decided)

    async def record(
        self, asking: Asking, said: dict[str, object], changes: tuple[Change, ...] = (), run_id: RunId | None = None
    ) -> Outcome:
        """A run that is complete at once: that something was done, and what is to be known of it."""
        parts = (Part(data=Raw(msgspec.json.encode(said))),) if said else ()
        start = Start(
            asking.agent, ConversationId(asking.conversation), str(asking.principal), None,
            assignment=Assignment(asking.mode, asking.action), done=Completed(parts),
        )  # fmt: skip
        execute = self._exchange.commands.execute
        return await execute(run_id or new_run_id(), start, key=asking.once, changes=changes)

    async def fulfil(self, run: Run, events: list[Event]) -> tuple[Change, ...]:
        """What becomes of the answer of a run that is about to complete with these events."""
        assignment = run.assignment
        if assignment is None or assignment.document is None:
            return ()
        head = await self._exchange.store.head(run.id)
        view = await read_view(self._exchange.store, head, events[0].seq - 1) if head is not None else View()
        view.feed(events)
        response = next((one for one in reversed(view.artifacts) if one.name == RESPONSE), None)
        answer = await self._answer(view, response)
        if not answer.strip():
            return ()
        content = content_of(answer, assignment.document, assignment.format)
        metadata = metadata_with(assignment.metadata, _maker(response))
        version = AddVersion(
            run.principal, run.conversation, assignment.document, run.agent, title_of(content.text, assignment.title),
            type_of(content.format), run.id, content.text, content.format, assignment.provenance, metadata,
            run.updated_at, made=new_id(),
            retitle=title_of(content.text, assignment.title) if assignment.anew else heading_of(content.text),
        )  # fmt: skip
        return (version,)

    async def _answer(self, view: View, response: Artifact | None) -> str:
        said = view.status.said
        parts = response.parts if response is not None else said.parts if said is not None else ()
        return text_of(await self._exchange.attachments.loaded(parts))

    async def before(self, asking: Asking) -> Outcome | None:
        """What this very request led to when it was made for the first time, whatever has changed since."""
        key = asking.once
        return await self._exchange.commands.replayed(key) if key else None

    async def _version(self, asking: Asking, kind: Kind, version: str | None) -> Found:
        found = await self.find(asking.principal, asking.conversation, kind, version)
        _there(found, kind)
        _named(found, version or "")
        return found

    async def _plan(self, asking: Asking, version: str | None) -> Found | None:
        if version is not None:
            return await self._version(asking, "plan", version)
        found = await self.find(asking.principal, asking.conversation, "plan")
        return found if found.version is not None else None

    async def _asked_for(self, run_id: RunId) -> tuple[Run | None, Parts]:
        """The run that made a version, and its input; no input for a version that a person wrote, or whose log is
        gone."""
        head = await self._exchange.store.head(run_id)
        events = await self._exchange.store.read(run_id, 0, 2)
        messages = [event.payload.message for event in events if isinstance(event.payload, InputReceived)]
        return head.run if head is not None else None, messages[0].parts if messages else ()

    async def _ask(
        self, asking: Asking, assignment: Assignment, parts: Parts, how: Drawing | None = None
    ) -> Outcome:  # fmt: skip
        driver = self._exchange.driver(asking.agent)
        if how is not None and isinstance(driver, Sampled):
            driver.check_sampling(how.model, how.max_tokens)
        drawing = msgspec.json.encode({SAMPLING: how}) if how is not None and how != Drawing() else b""
        message = Message(new_id(), parts, Raw(drawing) if drawing else UNSET)
        start = Start(
            asking.agent, ConversationId(asking.conversation), str(asking.principal), message, asking.parent,
            assignment=assignment, reach=asking.principal.reach,
        )  # fmt: skip
        return await self._exchange.assign(start, asking.once, asking.run)

    async def _write(
        self, asking: Asking, kind: Kind, content: str, format_: str, provenance: Provenance,
        about: dict[str, object], *, current: bool = True,
    ) -> Outcome:  # fmt: skip
        run_id = new_run_id()
        version = AddVersion(
            str(asking.principal), asking.conversation, kind, asking.agent, "", type_of(format_), run_id, content,
            format_, provenance, msgspec.json.encode(about), self._clock(), current, retitle=heading_of(content),
        )  # fmt: skip
        try:
            return await self.record(asking, {}, (version,), run_id)
        except Outdated:
            raise _missing(kind) from None

    async def _decide(
        self,
        asking: Asking,
        kind: Kind,
        version: str | None,
        decided: "Callable[[Found, int], tuple[Change, dict[str, object]]]",
    ) -> Outcome:
        """Read, decide and write, again for as long as somebody else is faster."""
        if before := await self.before(asking):
            return before
        for _ in range(MAX_TRIES):
            found = await self.find(asking.principal, asking.conversation, kind, version)
            change, said = decided(found, self._clock())
            try:
                return await self.record(asking, said, (change,))
            except Outdated:
                continue
        raise Outdated("The document changes too often; try again.")


def _assignment(asking: Asking, kind: Kind, provenance: Provenance, title: str, about: dict[str, object]) -> Assignment:
    metadata = msgspec.json.encode(about).decode()
    return Assignment(asking.mode, asking.action, kind, provenance, title_of("", title), metadata=metadata)


def _history_of(run: Run) -> int:
    """End of the history that the run's agent was shown, in Unix milliseconds."""
    known = run.assignment.history if run.assignment is not None else None
    return run.created_at if known is None else known


def _there(found: Found, kind: Kind) -> Document:
    if found.document is None:
        raise _missing(kind)
    return found.document


def _missing(kind: Kind) -> DocumentNotFound:
    return DocumentNotFound(f"This conversation has no {kind}.", kind=kind)


def _named(found: Found, version: str) -> None:
    if found.version is None:
        raise DocumentVersionNotFound("There is no such version.", version=version)


class _Told(Struct, frozen=True):
    """What a driver of models says of an answer."""

    model: str = ""
    usage: dict[str, int | None] = {}


def _maker(response: Artifact | None) -> dict[str, object]:
    """Which model answered, and what it took. An agent may say what it likes of its answer; then we know nothing."""
    if response is None or response.metadata is UNSET:
        return {}
    try:
        told = msgspec.json.decode(response.metadata, type=_Told)
    except msgspec.MsgspecError:
        return {}
    made: dict[str, object] = {"llmModel": told.model} if told.model else {}
    tokens = [count for count in told.usage.values() if count is not None]
    return {**made, "tokensUsed": sum(tokens)} if tokens else made
