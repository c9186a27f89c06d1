"""PDF, set by Typst. What was said reaches it as data in a file that the template reads: no word of it is a command."""

import sys
from importlib.resources import files
from pathlib import Path
from subprocess import CalledProcessError, TimeoutExpired, run
from threading import Lock

from parley import extras
from parley.core.transcripts import Said
from parley.engine.export import Cover, Sheet
from parley.errors import ExportFailed
from parley.exports.blocks import Node, blocks_of, code, words
from parley.exports.words import (
    KINDS,
    MADE,
    as_json,
    attachments,
    comma,
    counted,
    day,
    described,
    edition,
    hour,
    is_web,
    model,
    moment,
)
from parley.telemetry import tell

TEMPLATE = "page.typ"
MOST_BYTES = 2 << 30
MOST_S = 180.0
"""What a typesetter may take. It holds every page at once, so it works in a process of its own, which can be ended."""

_SET = """
import os, resource, sys
template, made, folder, most = sys.argv[1:]
os.nice(10)
resource.setrlimit(resource.RLIMIT_AS, (int(most), int(most)))
import typst
typst.compile(template, output=made, root=folder)
"""
_press = Lock()
"""One at a time: two would need twice the memory, and be no faster."""


class PdfRenderer:
    media_type = "application/pdf"
    extension = "pdf"

    def __init__(self) -> None:
        self._agent = ""
        self._day = ""
        self._messages = 0
        self._documents = 0

    def opening(self, cover: Cover) -> str:
        _check()
        begun, self._agent = cover.conversation, words(cover.agent)
        facts = [
            ["Begun", moment(begun.started_at)],
            ["Exported", moment(cover.exported_at)],
            ["Id", words(begun.id)],
        ]
        about = {"agent": self._agent, "facts": facts, "id": cover.id}
        return f'{{"cover": {as_json(about)},\n"messages": [\n'

    def message(self, said: Said) -> str:
        self._messages += 1
        is_system = said.role == "system"
        shown = {
            "role": said.role,
            "day": self._new_day(said),
            "speaker": (words(said.agent) or self._agent) if said.role == "assistant" else "User",
            "model": words(model(said)),
            "time": hour(said.at),
            "c": [{"t": "p", "c": [words(said.content)]}] if is_system else _spoken(said),
            "attached": [_mention(described(one), one.url) for one in attachments(said)],
        }
        return f"{comma(self._messages)}{as_json(shown)}"

    def document(self, sheet: Sheet) -> str:
        self._documents += 1
        document, version = sheet.document, sheet.version
        plain = version.format == "markdown"
        shown = {
            "kind": KINDS[document.kind],
            "title": words(document.title),
            "edition": edition(sheet),
            "c": blocks_of(sheet.content) if plain else [code(sheet.content, version.format)],
            "versions": [[str(one.number), MADE[one.provenance], moment(one.at)] for one in sheet.versions],
        }
        before = '\n],\n"sheets": [\n' if self._documents == 1 else ",\n"
        return f"{before}{as_json(shown)}"

    def closing(self, messages: int) -> str:
        return f'\n],\n"count": {as_json(counted(messages, "message"))}}}\n'

    def bound(self, written: Path) -> Path:
        """The template beside the data, in a folder of their own: the typesetter sees nothing else."""
        template, made = written.with_name(TEMPLATE), written.with_name("bound.pdf")
        template.write_bytes((files("parley.exports") / TEMPLATE).read_bytes())
        command = [sys.executable, "-c", _SET, str(template), str(made), str(written.parent), str(MOST_BYTES)]
        with _press:
            try:
                run(command, check=True, capture_output=True, timeout=MOST_S)
            except (CalledProcessError, TimeoutExpired) as error:
                tell("export.failed", format="pdf", size=written.stat().st_size, reason=type(error).__name__)
                raise ExportFailed(
                    "This conversation is too long for a PDF; export it in another format.", field="format"
                ) from None
        return made

    def _new_day(self, said: Said) -> str:
        if day(said.at) == self._day:
            return ""
        self._day = day(said.at)
        return self._day


def _check() -> None:
    extras.check("pdf", "An export as PDF", field="format")


def _spoken(said: Said) -> list[Node]:
    return blocks_of(said.content, breaks=said.role == "user")


def _mention(text: str, url: str | None) -> Node:
    return {"t": "a", "u": url, "c": [words(text)]} if is_web(url) else words(text)
