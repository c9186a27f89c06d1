"""Plans and deliverables: requests to read and change them. Each change is made by a run, and written together with
it."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from parley.audit.service import note
from parley.clock import Clock, iso, now_ms
from parley.documents.rules import (
    FORMATS,
    NOTHING_SAID,
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
    again,
    content_of,
    draft,
    edited_format,
    heading_of,
    hidden_format,
    made_by,
    merge,
    merged_format,
    metadata_with,
    named_by_media_type,
    rework,
    title_of,
    type_of,
)
from parley.documents.store import FoundDocument, Library
from parley.errors import (
    ConversationNotFound,
    CurrentVersion,
    DocumentNotFound,
    DocumentVersionNotFound,
    Invalid,
    Outdated,
    RunNotFound,
    StaleVersion,
)
from parley.execution.driver import Sampled
from parley.ids import ConversationId, RunId, is_id, new_id, new_run_id
from parley.runs.log import Outcome
from parley.runs.requests import keyed
from parley.runs.rules.access import Principal
from parley.runs.rules.commands import Start
from parley.runs.rules.content import SAMPLING, Artifact, Message, Part, Parts, text_of
from parley.runs.rules.events import RESPONSE, Completed, Event, InputReceived
from parley.runs.rules.state import Run
from parley.runs.rules.view import StatusMessage, View
from parley.runs.service import Exchange
from parley.runs.store import Key
from parley.runs.views import read_view

MAX_TRIES = 50
_NO_ID = "-"
"""An id that no version has. It replaces text that cannot be an id, so that stores are not asked for it."""


class DocumentRequest(Struct, frozen=True):
    """A request by a principal for an action in a conversation. A repetition with the same key must have the same
    `body`."""

    principal: Principal
    conversation: str
    agent: str
    mode: str
    action: str
    key: str | None = None
    body: bytes = b""
    run: RunId | None = None
    """The id of the run that the request becomes and (`parent`) the run that it is for, if they are known before: for a
    step of an orchestration."""
    parent: RunId | None = None
    about: dict[str, object] = {}
    """Metadata of the version that a step makes: which step it was."""
    at: int = 0
    """Time of the request in Unix milliseconds; 0 for the time at which it is recorded."""

    @property
    def assignment(self) -> Assignment:
        """The assignment of a run that does the action itself, without an agent."""
        return Assignment(self.mode, self.action, asked_at=self.at)

    @property
    def once(self) -> Key | None:
        asked = [self.mode, self.action, self.conversation, hashlib.sha256(self.body).hexdigest()]
        return keyed(self.key, self.principal, self.agent, list[object](asked))


class Drawing(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Model parameters for one request; None keeps the value of the agent's definition."""

    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None


class Documents:
    def __init__(self, exchange: Exchange, clock: Clock = now_ms) -> None:
        self._exchange = exchange
        self._clock = clock

    @property
    def library(self) -> Library:
        return self._exchange.store.library

    async def find(
        self, principal: Principal, conversation: str, kind: Kind, version: str | None = None
    ) -> FoundDocument:
        """Return the document of a conversation with its current version, or the named one. Each is None if it does not
        exist; raise ConversationNotFound if the conversation does not exist."""
        found = await self.library.find(str(principal), conversation, kind, version)
        if found is None:
            raise ConversationNotFound("There is no such conversation.", conversation=conversation)
        return found

    async def read(
        self, principal: Principal, conversation: str, kind: Kind, version: str | None = None
    ) -> FoundDocument:
        """Like `find`, but a named version must exist. It may belong to a document that was kept when its conversation
        was deleted."""
        wanted = version if version is None or is_id(version) else _NO_ID
        found = await self.find(principal, conversation, kind, wanted)
        if found.version is None and version is not None and wanted is not None:
            found = await self.outliving(principal, kind, wanted) or found
            _named(found, version)
        return found

    async def outliving(self, principal: Principal, kind: Kind, version: str) -> FoundDocument | None:
        """Return a version of a document that was kept when its conversation was deleted; only for its owner."""
        found = await self.library.version(version)
        if found is None or found.document is None or found.document.conversation:
            return None
        return found if (found.document.principal, found.document.kind) == (str(principal), kind) else None

    async def versions(
        self, principal: Principal, conversation: str, kind: Kind, limit: int, offset: int = 0
    ) -> tuple[Document, list[Version]]:
        """Return the document, which has the number of versions, and a page of its versions, newest first."""
        document = _there(await self.find(principal, conversation, kind), kind)
        return document, await self.library.versions(document.id, limit, offset)

    async def made(self, run: Run) -> FoundDocument | None:
        """Return the version that a run made, if it still exists."""
        return await self.library.version(run.id)

    async def create(
        self,
        asking: DocumentRequest,
        kind: Kind,
        message: str,
        *,
        force_new: bool = False,
        plan: str | None = None,
        expected: str | None = None,
        format_: str = "",
    ) -> Outcome:
        """Ask the agent for the next version. With `force_new` the agent is not shown the current version. A
        deliverable is made from the plan's current version, or from the one named `plan`. `expected` must be the
        current version now and when the answer is written. Without `format_` the format is detected from the answer. A
        step is shown its message alone: several steps may work in the conversation, and the plan defines the input of
        each."""
        step = asking.parent is not None
        if before := await self.before(asking):
            return before
        current = await self.find(asking.principal, asking.conversation, kind)
        _check_expected(current, kind, expected)
        shown = current.content if current.document is not None and not force_new else None
        followed = await self._plan(asking, plan) if kind == "deliverable" and not step else None
        if not message and followed is None:
            raise Invalid("message is missing: say what to write, or create a plan first.", field="message")
        about = asking.about | _based_on(None if force_new or step else current.version)
        if followed is not None and followed.version is not None:
            about["planVersionId"] = followed.version.id
        parts = draft(kind, message, shown, followed.content if followed else None, format_)
        assignment = _assignment(asking, kind, "conversation_task", message or NOTHING_SAID[kind], about)
        assignment = replace(
            assignment, anew=force_new, expected=expected or "", format=format_, history=0 if step else None
        )
        return await self._ask(asking, assignment, parts)

    async def answer(self, asking: DocumentRequest, task: str, message: str) -> Outcome:
        """Answer the question of a waiting task, which then continues."""
        if before := await self.before(asking):
            return before
        run = await self._exchange.visible(task, asking.principal, asking.agent)
        if run.conversation != asking.conversation:
            raise RunNotFound("Task not found.")
        return await self._exchange.answer(run, asking.principal, message, asking.once)

    async def merge(
        self, asking: DocumentRequest, kind: Kind, versions: Sequence[str], prompt: str, how: Drawing | None = None
    ) -> Outcome:
        if before := await self.before(asking):
            return before
        if len(set(versions)) < 2 or len(set(versions)) < len(versions):
            raise Invalid("versionIds must name at least two different versions.", field="versionIds")
        found = [await self._version(asking, kind, id_) for id_ in versions]
        chosen = [(one.version, one.content) for one in found if one.version is not None]
        newest = max((version for version, _ in chosen), key=lambda one: one.number)
        about = _based_on(newest) | {"mergedFrom": list(versions), "mergePrompt": prompt}
        assignment = _assignment(asking, kind, "merge_operation", prompt, about)
        assignment = replace(assignment, format=merged_format(version.format for version, _ in chosen), history=0)
        return await self._ask(asking, assignment, merge(kind, chosen, prompt), how)

    async def rerun(
        self, asking: DocumentRequest, kind: Kind, source: str | None, how: Drawing | None, message: str | None
    ) -> Outcome:
        """Repeat the request that made a version, with the history that its agent was shown. For a version that a
        person wrote, show the agent its content alone."""
        if before := await self.before(asking):
            return before
        found = await self._version(asking, kind, source)
        assert found.version is not None
        source_run, asked = await self._asked_for(RunId(found.version.id))
        parts = again(asked, message) if asked else rework(kind, found.content, message)
        made_for = source_run.assignment if source_run is not None and asked else None
        about = _based_on(found.version) | {"rerunFrom": found.version.id, "rerunConfig": how or Drawing()}
        title = found.document.title if found.document else ""
        assignment = replace(
            _assignment(asking, kind, "llm_rerun", title, about),
            format=(made_for.format if made_for is not None else "") or hidden_format(found.version.format),
            anew=made_for is not None and made_for.anew,
            history=_history_of(source_run) if source_run is not None and asked else 0,
        )
        return await self._ask(asking, assignment, parts, how)

    async def edit(
        self,
        asking: DocumentRequest,
        kind: Kind,
        content: str,
        notes: str | None = None,
        *,
        expected: str | None = None,
    ) -> Outcome:
        if before := await self.before(asking):
            return before
        current = await self._version(asking, kind, None)
        _check_expected(current, kind, expected)
        assert current.version is not None
        about = _based_on(current.version)
        about |= {"editedFromVersionId": current.version.id, "editedAt": iso(self._clock())}
        if notes is not None:
            about["editNotes"] = notes
        format_ = edited_format(current.version.format, content)
        return await self._write(asking, kind, content, format_, "manual_edit", about, expected=expected or "")

    async def copy(self, asking: DocumentRequest, kind: Kind, version: str, *, current: bool = False) -> Outcome:
        if before := await self.before(asking):
            return before
        source = await self._version(asking, kind, version)
        assert source.version is not None
        about: dict[str, object] = {"copiedFrom": version, "originalVersionNumber": source.version.number}
        return await self._write(
            asking, kind, source.content, source.version.format, "copy_operation", about, current=current
        )

    async def point(self, asking: DocumentRequest, kind: Kind, version: str) -> Outcome:
        """Make another version current. Choosing the version that is current already succeeds and changes nothing."""

        def decided(found: FoundDocument, at: int) -> tuple[Change, dict[str, object]]:
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

    async def drop_version(self, asking: DocumentRequest, kind: Kind, version: str) -> Outcome:
        def decided(found: FoundDocument, at: int) -> tuple[Change, dict[str, object]]:
            document = _there(found, kind)
            _named(found, version)
            if document.current == version:
                raise CurrentVersion("The current version cannot be deleted; make another one current first.")
            said: dict[str, object] = {"document": document.id, "version": version, "remaining": document.versions - 1}
            return DropVersion(document.id, document.revision, version, at), said

        outcome = await self._decide(asking, kind, version, decided)
        if not outcome.replayed:
            note("version.deleted", asking.principal, kind, version)
        return outcome

    async def drop(self, asking: DocumentRequest, kind: Kind) -> Outcome:
        def decided(found: FoundDocument, at: int) -> tuple[Change, dict[str, object]]:
            document = _there(found, kind)
            said: dict[str, object] = {"document": document.id, "versions": document.versions}
            return DropDocument(document.id, document.revision), said

        outcome = await self._decide(asking, kind, None, decided)
        if not outcome.replayed:
            note("document.deleted", asking.principal, kind, asking.conversation)
        return outcome

    async def record(
        self,
        asking: DocumentRequest,
        said: dict[str, object],
        changes: tuple[Change, ...] = (),
        run_id: RunId | None = None,
    ) -> Outcome:
        """Record a run that is complete at once: it says that an action was done, with the data to keep about it."""
        parts = (Part(data=Raw(msgspec.json.encode(said))),) if said else ()
        start = Start(
            asking.agent,
            ConversationId(asking.conversation),
            str(asking.principal),
            None,
            assignment=asking.assignment,
            done=Completed(parts),
        )
        execute = self._exchange.commands.execute
        return await execute(run_id or new_run_id(), start, key=asking.once, changes=changes)

    # Why: docs/decisions/documents.md#write-the-version-when-the-run-completes
    async def fulfil(self, run: Run, events: list[Event]) -> tuple[Change, ...]:
        """Return the changes that follow from the answer of a run that is about to complete with these events."""
        assignment = run.assignment
        if assignment is None or assignment.document is None:
            return ()
        head = await self._exchange.store.head(run.id)
        view = await read_view(self._exchange.store, head, events[0].seq - 1) if head is not None else View()
        view.feed(events)
        said = _answer_in(view)
        parts = await self._exchange.attachments.loaded(said.parts) if said is not None else ()
        answer = text_of(parts) or _data_in(parts)
        if said is None or not answer.strip():
            return ()
        declared = assignment.format or _declared_by(parts, assignment.document)
        content = content_of(answer, assignment.document, declared)
        metadata = metadata_with(assignment.metadata, made_by(said.metadata))
        version = AddVersion(
            run.principal,
            run.conversation,
            assignment.document,
            run.agent,
            title_of(content.text, assignment.title),
            type_of(content.format),
            run.id,
            content.text,
            content.format,
            assignment.provenance,
            metadata,
            run.updated_at,
            made=new_id(),
            retitle=title_of(content.text, assignment.title) if assignment.anew else heading_of(content.text),
            expected=assignment.expected,
        )
        return (version,)

    async def once(self, asking: DocumentRequest, do: Callable[[], Awaitable[dict[str, object]]]) -> Outcome:
        """Do an action and record its result, unless the same request has done so before."""
        return await self.before(asking) or await self.record(asking, await do())

    async def before(self, asking: DocumentRequest) -> Outcome | None:
        """Return the outcome of the first request with the same key, whatever has changed since; None if this is the
        first."""
        key = asking.once
        return await self._exchange.commands.replayed(key) if key else None

    async def _version(self, asking: DocumentRequest, kind: Kind, version: str | None) -> FoundDocument:
        found = await self.find(asking.principal, asking.conversation, kind, version)
        _there(found, kind)
        _named(found, version or "")
        return found

    async def _plan(self, asking: DocumentRequest, version: str | None) -> FoundDocument | None:
        if version is not None:
            return await self._version(asking, "plan", version)
        found = await self.find(asking.principal, asking.conversation, "plan")
        return found if found.version is not None else None

    async def _asked_for(self, run_id: RunId) -> tuple[Run | None, Parts]:
        """Return the run that made a version, and its input; no input for a version that a person wrote, or whose log
        was deleted."""
        head = await self._exchange.store.head(run_id)
        events = await self._exchange.store.read(run_id, 0, 2)
        messages = [event.payload.message for event in events if isinstance(event.payload, InputReceived)]
        return head.run if head is not None else None, messages[0].parts if messages else ()

    async def _ask(
        self, asking: DocumentRequest, assignment: Assignment, parts: Parts, how: Drawing | None = None
    ) -> Outcome:
        driver = self._exchange.driver(asking.agent)
        if how is not None and isinstance(driver, Sampled):
            driver.check_sampling(how.model, how.max_tokens)
        drawing = msgspec.json.encode({SAMPLING: how}) if how is not None and how != Drawing() else b""
        message = Message(new_id(), parts, Raw(drawing) if drawing else UNSET)
        start = Start(
            asking.agent,
            ConversationId(asking.conversation),
            str(asking.principal),
            message,
            asking.parent,
            assignment=assignment,
            reach=asking.principal.reach,
        )
        return await self._exchange.assign(start, asking.once, asking.run)

    async def _write(
        self,
        asking: DocumentRequest,
        kind: Kind,
        content: str,
        format_: str,
        provenance: Provenance,
        about: dict[str, object],
        *,
        current: bool = True,
        expected: str = "",
    ) -> Outcome:
        run_id = new_run_id()
        version = AddVersion(
            str(asking.principal),
            asking.conversation,
            kind,
            asking.agent,
            "",
            type_of(format_),
            run_id,
            content,
            format_,
            provenance,
            msgspec.json.encode(about),
            self._clock(),
            current,
            retitle=heading_of(content),
            expected=expected,
        )
        try:
            return await self.record(asking, {}, (version,), run_id)
        except Outdated:
            if not expected:
                raise _missing(kind) from None
            found = await self.find(asking.principal, asking.conversation, kind)
            raise _stale(kind, _there(found, kind).current) from None

    async def _decide(
        self,
        asking: DocumentRequest,
        kind: Kind,
        version: str | None,
        decided: "Callable[[FoundDocument, int], tuple[Change, dict[str, object]]]",
    ) -> Outcome:
        """Read, decide and write; retry as long as another request changes the document first."""
        if before := await self.before(asking):
            return before
        for _ in range(MAX_TRIES):
            found = await self.find(asking.principal, asking.conversation, kind, version)
            change, said = decided(found, self._clock())
            try:
                return await self.record(asking, said, (change,))
            except Outdated:
                continue
        raise Outdated("Other requests are changing the document at the same time; try again.")


def _assignment(
    asking: DocumentRequest, kind: Kind, provenance: Provenance, title: str, about: dict[str, object]
) -> Assignment:
    metadata = msgspec.json.encode(about).decode()
    return Assignment(asking.mode, asking.action, kind, provenance, title_of("", title), metadata=metadata)


def _history_of(run: Run) -> int:
    """Return the end of the history that the run's agent was shown, in Unix milliseconds."""
    known = run.assignment.history if run.assignment is not None else None
    return run.created_at if known is None else known


def _there(found: FoundDocument, kind: Kind) -> Document:
    if found.document is None:
        raise _missing(kind)
    return found.document


# Why: docs/decisions/documents.md#check-the-expected-version-twice
def _check_expected(found: FoundDocument, kind: Kind, expected: str | None) -> None:
    current = found.document.current if found.document is not None else None
    if expected is not None and expected != current:
        raise _stale(kind, current)


def _stale(kind: Kind, current: str | None) -> StaleVersion:
    if current is None:
        return StaleVersion(
            f"expectedVersionId names a version, but this conversation has no {kind}.", field="expectedVersionId"
        )
    return StaleVersion(
        f"expectedVersionId is not the current version of the {kind}, which is {current}. Nothing was changed; read "
        "the current version and decide again.",
        field="expectedVersionId",
        current=current,
    )


def _missing(kind: Kind) -> DocumentNotFound:
    return DocumentNotFound(f"This conversation has no {kind}.", kind=kind)


def _named(found: FoundDocument, version: str) -> None:
    if found.version is None:
        raise DocumentVersionNotFound("There is no such version.", version=version)


def _based_on(version: Version | None) -> dict[str, object]:
    return {"basedOn": version.id} if version is not None else {}


def _answer_in(view: View) -> Artifact | StatusMessage | None:
    """Return the agent's answer: the text that it streamed, else its last message."""
    response = next((one for one in reversed(view.artifacts) if one.name == RESPONSE), None)
    return response if response is not None else view.status.said


def _data_in(parts: Parts) -> str:
    """Return the JSON value of an answer that consists of one value and no text; else empty."""
    values = [bytes(part.data).decode() for part in parts if part.data is not UNSET]
    return values[0] if len(values) == 1 else ""


def _declared_by(parts: Parts, kind: Kind) -> str:
    """Return the format that all media types of an answer name; else empty."""
    named = {named_by_media_type(part.media_type, FORMATS[kind]) for part in parts if part.text}
    return named.pop() if len(named) == 1 else ""
