"""JSON export, for programs: one message per line, so that a file of any length can be read line by line."""

from pathlib import Path

from parley.clock import iso
from parley.documents.export.renderer import Bound, Cover, ExportedDocument, as_json, comma
from parley.documents.rules import Version
from parley.runs.rules.transcript import TranscriptMessage


class JsonRenderer:
    media_type = "application/json"
    extension = "json"

    def __init__(self) -> None:
        self._messages = 0
        self._documents = 0

    def opening(self, cover: Cover) -> str:
        begun = cover.conversation
        conversation = {
            "id": begun.id,
            "agentName": begun.agent,
            "userId": begun.principal,
            "startedAt": iso(begun.started_at),
        }
        export = {"id": cover.id, "exportedAt": iso(cover.exported_at)}
        return f'{{"export": {as_json(export)},\n"conversation": {as_json(conversation)},\n"messages": [\n'

    def message(self, said: TranscriptMessage) -> str:
        self._messages += 1
        shown = {
            "id": said.id,
            "role": said.role,
            "content": said.content,
            "timestamp": iso(said.at),
            "taskId": said.run,
            **({"speaker": said.agent} if said.agent else {}),
            "metadata": said.metadata,
        }
        return f"{comma(self._messages)}{as_json(shown)}"

    def document(self, sheet: ExportedDocument) -> str:
        self._documents += 1
        document = sheet.document
        shown = {
            "id": document.id,
            "kind": document.kind,
            "title": document.title,
            "type": document.type,
            "createdAt": iso(document.created_at),
            "updatedAt": iso(document.updated_at),
            "currentVersion": {**_version(sheet.version), "content": sheet.content},
            "versionCount": document.versions,
            "versions": [_version(one) for one in sheet.versions],
        }
        before = '\n],\n"artifacts": [\n' if self._documents == 1 else ",\n"
        return f"{before}{as_json(shown)}"

    def closing(self, messages: int) -> str:
        return f'\n],\n"messageCount": {messages}}}\n'

    def bound(self, written: Path) -> Bound:
        return Bound(written)


def _version(one: Version) -> dict[str, object]:
    return {
        "id": one.id,
        "versionNumber": one.number,
        "format": one.format,
        "createdByType": one.provenance,
        "createdAt": iso(one.at),
        "metadata": one.metadata,
    }
