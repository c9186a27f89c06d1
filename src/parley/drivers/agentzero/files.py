"""Files on their way to Agent-Zero and back: their names, and which of them may be fetched."""

import hashlib
import mimetypes
import posixpath
import re
from collections.abc import Iterable, Sequence

from msgspec import UNSET

from parley.core.artifacts import Part
from parley.core.conversations import Message
from parley.core.turns import ArtifactChunk
from parley.drivers.agentzero.words import File, Large
from parley.orgkernel.files import MadeFile, media_type_of

MAX_FILES = 20
# It begins only where no character of a path stands before, so that a text is searched in linear time.
_PATH = re.compile(r"(?<![\w/.~+@-])/(?:[\w.+@-]+/)*[\w+@-][\w.+@-]*")


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


def artifact(path: str, content: bytes | Large, roots: Sequence[str]) -> ArtifactChunk:
    """Under an id that is the same whenever it is shown, so that a later content takes the place of an earlier one."""
    name = posixpath.basename(path)
    inner = min((posixpath.relpath(path, root) for root in roots if _is_below(path, [root])), key=len, default=name)
    size, held = (content.size, None) if isinstance(content, Large) else (len(content), content)
    made = MadeFile(name, inner, media_type_of(name), size, held)
    id_ = f"file-{hashlib.sha256(path.encode()).hexdigest()[:12]}"
    return ArtifactChunk(made.part, id_, made.name, metadata=made.metadata)
