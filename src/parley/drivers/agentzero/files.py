"""Files on their way to Agent-Zero and back: their names, and which of them may be fetched."""

import hashlib
import mimetypes
import posixpath
import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET, Raw

from parley.core.artifacts import Part
from parley.core.conversations import Message
from parley.core.turns import ArtifactChunk
from parley.drivers.agentzero.words import File, Large

MAX_FILES = 20
_PATH = re.compile(r"(?<![\w/.~-])/(?:[\w.+@-]+/)*[\w+@-][\w.+@-]*")
_TEXTS = frozenset(
    ("application/json", "application/xml", "application/javascript", "application/x-sh", "application/toml")
)
_SOURCES = (
    ".c", ".cfg", ".conf", ".cpp", ".go", ".h", ".ini", ".java", ".js", ".log", ".md", ".py", ".rb", ".rs", ".sh",
    ".sql", ".toml", ".ts", ".txt", ".yaml", ".yml",
)  # fmt: skip


def spoken(messages: Sequence[Message], run: str) -> tuple[str, list[File]]:
    """What some messages say, as one text, and the files that come with it."""
    lines: list[str] = []
    files: list[File] = []
    for message in messages:
        for part in message.parts:
            if part.text is not None and part.filename is None:
                lines.append(part.text)
            elif part.url is not None:
                lines.append(part.url)
            elif part.data is not UNSET:
                lines.append(bytes(part.data).decode())
            else:
                files.append(_file(part, run, len(files) + 1))
    return "\n".join(lines).strip() or ("See the attached files." if files else ""), files


def _file(part: Part, run: str, number: int) -> File:
    """All uploads lie in one folder: a name of its own keeps one task from writing over another's."""
    kind = part.media_type or "application/octet-stream"
    name = re.sub(r"[^\w.+@ -]", "_", part.filename or f"file-{number}{mimetypes.guess_extension(kind) or ''}")
    own = hashlib.sha256(f"{run}/{number}".encode()).hexdigest()[:8]
    content = part.raw if part.raw is not None else (part.text or "").encode()
    return File(f"{own}-{name[-200:]}", content, kind)


def fetched(made: Iterable[str], directory: str, answer: str, roots: Sequence[str]) -> list[str]:
    """The files of an answer: those that a report lists, and those that it names, below the roots."""
    paths = [*(posixpath.join(directory or "/", one) for one in made), *_PATH.findall(answer)]
    cleaned = (posixpath.normpath(path.rstrip(".")) for path in paths)
    return list(dict.fromkeys(path for path in cleaned if _is_below(path, roots)))[:MAX_FILES]


def _is_below(path: str, roots: Sequence[str]) -> bool:
    return any(path.startswith(f"{root.rstrip('/')}/") for root in roots)


def artifact(path: str, content: bytes | Large) -> ArtifactChunk:
    """Text as text, bytes as bytes; of what is too large, where it is."""
    name = posixpath.basename(path)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    about: dict[str, object] = {"mimeType": kind, "path": path}
    if isinstance(content, Large):
        size = f"{content.size:,} bytes" if content.size is not None else "large"
        if content.size is not None:
            about["size"] = content.size
        said = f"{path} ({size}) is too large to be passed on here."
        return ArtifactChunk(said, id=f"file:{path}", name=name, metadata=_json(about))
    return ArtifactChunk(
        _content(content, name, kind), id=f"file:{path}", filename=name, media_type=kind, metadata=_json(about)
    )


def _content(content: bytes, name: str, kind: str) -> str | bytes:
    if kind.startswith("text/") or kind in _TEXTS or posixpath.splitext(name)[1].lower() in _SOURCES:
        try:
            return content.decode()
        except UnicodeDecodeError:
            return content
    return content


def _json(about: dict[str, object]) -> Raw:
    return Raw(msgspec.json.encode(about))
