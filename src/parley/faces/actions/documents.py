"""Actions of the modes plan, build and converse: documents and conversations in the format of the contract."""

from collections.abc import Callable
from typing import cast

import msgspec
from msgspec import Struct, UnsetType

from parley.clock import iso
from parley.documents.conversations import MESSAGES, Conversations, Exported
from parley.documents.rules import Conversation, Document, Version
from parley.documents.service import Documents, Drawing
from parley.faces.actions.params import (
    CopyVersion,
    CreateDeliverable,
    CreatePlan,
    DeleteConversation,
    DeleteVersion,
    EditDocument,
    ExportConversation,
    ListVersions,
    LlmConfig,
    MergeVersions,
    ReadConversation,
    ReadDocument,
    RerunConfig,
    RerunDeliverable,
    SetCurrent,
)
from parley.faces.actions.results import (
    ArtifactsDeleted,
    ConversationDeleted,
    ConversationExported,
    ConversationRead,
    ConversationShown,
    Deliverable,
    DeliverableCreated,
    DeliverableDeleted,
    DeliverablePointed,
    DeliverableRead,
    DeliverableVersions,
    DocumentType,
    DocumentVersion,
    ExportCounts,
    ExportFormat,
    MessageShown,
    Plan,
    PlanCreated,
    PlanDeleted,
    PlanPointed,
    PlanRead,
    PlanVersions,
    Pointed,
    VersionDeleted,
    VersionMade,
    VersionSummary,
)
from parley.faces.actions.table import ActionCall, ActionHandlers, ActionResult, Row
from parley.ids import is_id
from parley.runs.log import Outcome
from parley.runs.rules.state import Run

# Documents in the format of the contract.


def shown_plan(one: Document) -> Plan:
    return Plan(one.id, one.conversation, one.title, one.current, iso(one.created_at), iso(one.updated_at))


def shown_deliverable(one: Document) -> Deliverable:
    type_ = cast("DocumentType", one.type)
    return Deliverable(
        one.id, one.conversation, one.title, one.current, iso(one.created_at), iso(one.updated_at), type_
    )


def shown_version(document: Document, one: Version, content: str) -> DocumentVersion:
    return DocumentVersion(
        one.id, one.number, content, one.format, one.provenance, one.id == document.current, iso(one.at), one.metadata
    )


def summary(document: Document, one: Version) -> VersionSummary:
    return VersionSummary(
        one.id,
        one.number,
        one.preview,
        one.format,
        one.provenance,
        one.id == document.current,
        iso(one.at),
        one.metadata,
    )


def shown_conversation(one: Conversation, last_message_at: int | None = None) -> ConversationShown:
    last = iso(last_message_at) if last_message_at is not None else None
    return ConversationShown(one.id, one.agent, one.principal, iso(one.started_at), last)


DEFAULT_LIST = 50
_NO_ID = "-"
"""An id that no version has."""


class DocumentActions:
    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def handlers(self) -> dict[Row, ActionHandlers]:
        shared = {
            "read": ActionHandlers(self.read),
            "list": ActionHandlers(self.versions),
            "edit": ActionHandlers(self.edit, self.made),
            "set_current": ActionHandlers(self.set_current, pointed),
            "delete_version": ActionHandlers(self.delete_version, version_deleted),
            "merge_versions": ActionHandlers(self.merge_versions, self.made),
            "copy_version": ActionHandlers(self.copy_version, self.made),
            "delete": ActionHandlers(self.delete, document_deleted),
        }
        plan = {**shared, "create": ActionHandlers(self.create_plan, self.created)}
        build = {
            **shared,
            "create": ActionHandlers(self.create_deliverable, self.created),
            "rerun": ActionHandlers(self.rerun, self.made),
        }
        return {("plan", name): one for name, one in plan.items()} | {
            ("build", name): one for name, one in build.items()
        }

    async def create_plan(self, call: ActionCall) -> Outcome:
        params = call.read(CreatePlan)
        if params.task_id:
            return await self._documents.answer(call.request, params.task_id, params.message)
        return await self._documents.create(
            call.request,
            "plan",
            params.message,
            force_new=bool(params.force_new),
            expected=_expected(params.expected_version_id),
            format_=params.format or "",
        )

    async def create_deliverable(self, call: ActionCall) -> Outcome:
        params = call.read(CreateDeliverable)
        if params.task_id:
            return await self._documents.answer(call.request, params.task_id, params.message or "")
        return await self._documents.create(
            call.request,
            "deliverable",
            params.message or "",
            force_new=bool(params.force_new),
            plan=_id(params.plan_version_id) if params.plan_version_id is not None else None,
            expected=_expected(params.expected_version_id),
            format_=params.format or "",
        )

    async def read(self, call: ActionCall) -> ActionResult:
        version, kind = call.read(ReadDocument).version_id, call.action.kind
        found = await self._documents.read(call.principal, call.conversation, kind, version)
        document = found.document
        if document is None or found.version is None:
            return ActionResult(None)
        shown = shown_version(document, found.version, found.content)
        if kind == "plan":
            return ActionResult(PlanRead(shown_plan(document), shown))
        return ActionResult(DeliverableRead(shown_deliverable(document), shown))

    async def versions(self, call: ActionCall) -> ActionResult:
        params = call.read(ListVersions)
        limit, offset = params.limit or DEFAULT_LIST, params.offset or 0
        document, versions = await self._documents.versions(
            call.principal, call.conversation, call.action.kind, limit, offset
        )
        made = PlanVersions if call.action.kind == "plan" else DeliverableVersions
        shown = [summary(document, one) for one in versions]
        return ActionResult(made(document.id, shown, document.versions, offset + len(shown) < document.versions))

    async def edit(self, call: ActionCall) -> Outcome:
        params = call.read(EditDocument)
        return await self._documents.edit(
            call.request,
            call.action.kind,
            params.edited_content,
            params.edit_notes,
            expected=_expected(params.expected_version_id),
        )

    async def set_current(self, call: ActionCall) -> Outcome:
        return await self._documents.point(call.request, call.action.kind, _id(call.read(SetCurrent).version_id))

    async def delete_version(self, call: ActionCall) -> Outcome:
        return await self._documents.drop_version(
            call.request, call.action.kind, _id(call.read(DeleteVersion).version_id)
        )

    async def merge_versions(self, call: ActionCall) -> Outcome:
        params = call.read(MergeVersions)
        versions = [_id(one) for one in params.version_ids]
        return await self._documents.merge(
            call.request, call.action.kind, versions, params.merge_prompt, _drawing(params.llm_config)
        )

    async def rerun(self, call: ActionCall) -> Outcome:
        params = call.read(RerunDeliverable)
        source = None if params.source_version_id is None else _id(params.source_version_id)
        return await self._documents.rerun(
            call.request, "deliverable", source, _drawing(params.rerun_config), params.message
        )

    async def copy_version(self, call: ActionCall) -> Outcome:
        params = call.read(CopyVersion)
        return await self._documents.copy(
            call.request, call.action.kind, _id(params.version_id), current=bool(params.set_current)
        )

    async def delete(self, call: ActionCall) -> Outcome:
        return await self._documents.drop(call.request, call.action.kind)

    async def made(self, run: Run, _: bytes) -> VersionMade | None:
        """Return the version that a run made; None if it was deleted since."""
        found = await self._documents.made(run)
        if found is None or found.document is None or found.version is None:
            return None
        return VersionMade(shown_version(found.document, found.version, found.content))

    async def created(self, run: Run, _: bytes) -> PlanCreated | DeliverableCreated | None:
        found = await self._documents.made(run)
        if found is None or found.document is None or found.version is None:
            return None
        version = shown_version(found.document, found.version, found.content)
        if found.document.kind == "plan":
            return PlanCreated(shown_plan(found.document), version)
        return DeliverableCreated(shown_deliverable(found.document), version)


class _Pointed(Struct, frozen=True):
    document: str
    previous: str
    version: str
    at: int


class _VersionDeleted(Struct, frozen=True):
    version: str
    remaining: int


class _DocumentDeleted(Struct, frozen=True):
    document: str
    versions: int


async def pointed(run: Run, data: bytes) -> PlanPointed | DeliverablePointed:
    record = msgspec.json.decode(data, type=_Pointed)
    document = Pointed(record.document, record.version, iso(record.at))
    return (PlanPointed if _is_plan(run) else DeliverablePointed)(document, record.previous, record.version)


async def version_deleted(run: Run, data: bytes) -> VersionDeleted:
    record = msgspec.json.decode(data, type=_VersionDeleted)
    return VersionDeleted(True, record.version, record.remaining)


async def document_deleted(run: Run, data: bytes) -> PlanDeleted | DeliverableDeleted:
    record = msgspec.json.decode(data, type=_DocumentDeleted)
    return (PlanDeleted if _is_plan(run) else DeliverableDeleted)(True, record.document, record.versions)


def _is_plan(run: Run) -> bool:
    return run.assignment is not None and run.assignment.mode == "plan"


def _drawing(config: LlmConfig | None) -> Drawing | None:
    if config is None:
        return None
    most = config.max_tokens if isinstance(config, RerunConfig) else None
    return Drawing(config.model, config.temperature, most)


def _expected(given: str | UnsetType | None) -> str | None:
    return _id(given) if isinstance(given, str) else None


def _id(given: str) -> str:
    """Return the id; if stores cannot look it up, an id that no version has."""
    return given if is_id(given) else _NO_ID


class ConversationActions:
    """Actions of the mode converse. `address` returns the link to an exported file."""

    def __init__(self, conversations: Conversations, address: Callable[[str, Exported], str]) -> None:
        self._conversations = conversations
        self._address = address

    def handlers(self) -> dict[Row, ActionHandlers]:
        return {
            ("converse", "read_conversation"): ActionHandlers(self.read),
            ("converse", "delete_conversation"): ActionHandlers(self.delete, conversation_deleted),
            ("converse", "export_conversation"): ActionHandlers(self.export, self.exported),
        }

    async def read(self, call: ActionCall) -> ActionResult:
        params = call.read(ReadConversation)
        page = await self._conversations.page(
            call.principal,
            call.conversation,
            params.limit or MESSAGES,
            params.offset or 0,
            include_system=bool(params.include_system),
        )
        messages = [MessageShown(one.id, one.role, one.content, iso(one.at), one.metadata) for one in page.messages]
        conversation = shown_conversation(page.conversation, page.last_message_at)
        return ActionResult(ConversationRead(conversation, messages, page.total, page.has_more))

    async def delete(self, call: ActionCall) -> Outcome:
        params = call.read(DeleteConversation)
        return await self._conversations.delete(call.request, documents=params.delete_artifacts)

    async def export(self, call: ActionCall) -> Outcome:
        params = call.read(ExportConversation)
        return await self._conversations.export(call.request, params.format, artifacts=bool(params.include_artifacts))

    async def exported(self, run: Run, data: bytes) -> ConversationExported:
        record = msgspec.json.decode(data, type=Exported)
        return ConversationExported(
            self._address(run.id, record),
            cast("ExportFormat", record.format),
            iso(record.expires_at),
            record.size,
            ExportCounts(record.message_count, record.artifacts_included, record.warnings),
        )


class _ConversationDeleted(Struct, frozen=True, rename="camel"):
    messages_deleted: int
    artifacts_deleted: ArtifactsDeleted | None = None


async def conversation_deleted(run: Run, data: bytes) -> ConversationDeleted:
    record = msgspec.json.decode(data, type=_ConversationDeleted)
    return ConversationDeleted(True, run.conversation, record.messages_deleted, record.artifacts_deleted)
