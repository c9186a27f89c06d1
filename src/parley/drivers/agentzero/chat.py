"""Agent-Zero's chats in plain values, the same for both of its interfaces."""

import hashlib
import mimetypes
import posixpath
import re
from collections.abc import Iterable, Sequence

from msgspec import UNSET, Struct

from parley.execution.rules import ArtifactChunk, Status
from parley.orgkernel.files import MadeFile, media_type_of
from parley.runs.rules.content import Message, Part
from parley.tools.rules.redaction import sanitised_error


class ChatItem(Struct, frozen=True):
    """An entry of a chat's log. Its content may still change; its number does not."""

    no: int
    type: str
    id: str | None = None
    heading: str | None = None
    content: str | None = None
    agentno: int | None = None


class Chat(Struct, frozen=True):
    id: str
    running: bool | None = None


class Poll(Struct, frozen=True):
    """The answer to `poll`: the changes in one chat since a version of its log, and the list of chats."""

    log_guid: str
    log_version: int
    logs: tuple[ChatItem, ...] = ()
    contexts: tuple[Chat, ...] = ()
    deselect_chat: bool = False
    log_progress_active: bool = False
    paused: bool = False


class ChatLog(Struct, frozen=True):
    guid: str
    total_items: int
    progress_active: bool = False
    items: tuple[ChatItem, ...] = ()


class LogReply(Struct, frozen=True):
    """The answer to `api_log_get`."""

    log: ChatLog


class ChatAnswer(Struct, frozen=True):
    """The answer to `api_message`. It arrives when the work is done."""

    context_id: str
    response: str | None = None


class Received(Struct, frozen=True):
    """The answer to `message_async`."""

    context: str


class Token(Struct, frozen=True):
    """The answer to `csrf_token`."""

    ok: bool
    token: str = ""
    runtime_id: str = ""


class FileInfo(Struct, frozen=True):
    is_file: bool
    is_link: bool = False
    size: int = 0


class Look(Struct, frozen=True):
    """A snapshot of a chat. `version` is the log version to continue from at the next look."""

    items: tuple[ChatItem, ...] = ()
    running: bool = False
    known: bool = True
    """False when Agent-Zero has no such chat."""
    guid: str = ""
    version: int = 0


class ChatFile(Struct, frozen=True):
    """A file on its way to or from Agent-Zero."""

    name: str
    content: bytes
    media_type: str = "application/octet-stream"


class Large(Struct, frozen=True):
    """A file that is too large to fetch."""

    size: int


def looked(poll: Poll, context: str) -> Look:
    """Convert a poll to a look. Older versions of Agent-Zero do not report which chats run; there the progress flag is
    used."""
    chat = next((one for one in poll.contexts if one.id == context), None)
    running = poll.log_progress_active if chat is None or chat.running is None else chat.running
    return Look(poll.logs, running, not poll.deselect_chat, poll.log_guid, poll.log_version)


# From a chat's log to outputs of our turn. Pure; content that was shown once is not shown again.

_ICON = re.compile(r"icon://\S*\s*")
# Each pattern can match only where no character of its own kind stands before, so that the search takes linear time.
_METER = re.compile(r"(?<![|\s])[|\s]++\Z")
_ERROR = re.compile(r"(?<![A-Za-z_.])[A-Za-z_.]*(?:Error|Exception)\b")
_SILENT = frozenset(("user", "response", "error", "util", "input"))
"""Types of log items that are not steps of the agent."""


class Course(Struct):
    """The progress of one piece of work: the chat's log after the message that started it."""

    mine: int = -1
    """Number of our newest message."""
    shown: int = -1
    """Number of the latest item that is in our log."""
    items: dict[int, ChatItem] = {}
    last: str = ""

    def forget(self) -> None:
        """Forget the items, because the log was rewritten: it is read again, and only what is new is shown."""
        self.items = {}

    def heard(self, items: Iterable[ChatItem]) -> list[Status]:
        """Store the items as they are now. Returns a marked status for each heading that was not shown before."""
        outputs: list[Status] = []
        for item in items:
            before, self.items[item.no] = self.items.get(item.no), item
            words = "" if item.type in _SILENT else plain(item.heading or "")
            if item.no <= self.mine or not words or words == self.last:
                continue
            if item.no > self.shown or (before is not None and plain(before.heading or "") != words):
                self.last, self.shown = words, max(self.shown, item.no)
                outputs.append(Status(words, str(item.no)))
        return outputs

    @property
    def response(self) -> str | None:
        """The first agent's last answer to our message; None if its work failed after that answer."""
        for item in sorted(self.items.values(), key=lambda item: item.no, reverse=True):
            if item.no <= self.mine or item.type == "error":
                return None
            if item.type == "response" and not item.agentno and item.content:
                return item.content
        return None

    @property
    def responses(self) -> list[str]:
        """All answers to our message, including those before a failure."""
        found = [item for item in self.items.values() if item.type == "response" and item.no > self.mine]
        return [item.content for item in found if item.content]

    @property
    def error(self) -> str | None:
        """The complete error that stopped the work, for the operator."""
        errors = [item for item in self.items.values() if item.type == "error" and item.no > self.mine]
        return (max(errors, key=lambda item: item.no).content or "") if errors else None

    @property
    def steps_taken(self) -> list[str]:
        """The agent's steps, in its own words."""
        done = sorted((item for item in self.items.values() if item.no > self.mine), key=lambda item: item.no)
        said = [plain(item.heading or "") for item in done if item.type not in (*_SILENT, "warning")]
        return list(dict.fromkeys(words for words in said if words))

    @property
    def failures(self) -> list[str]:
        """Warnings during the work. For a warning without a heading, only the kind of error."""
        found = [item for item in self.items.values() if item.type == "warning" and item.no > self.mine]
        return [plain(item.heading or "") or f"A step ended with {kind_of(item.content or '')}." for item in found]


def plain(heading: str) -> str:
    """Return a heading without the icons meant for a web page, and without secrets."""
    return sanitised_error(_METER.sub("", _ICON.sub("", heading)).strip())


def kind_of(error: str) -> str:
    """Return only the kind of an error, because its text may contain anything."""
    found = _ERROR.search(error)
    return found[0].rpartition(".")[2] if found else "error"


def newest(items: Iterable[ChatItem], run: str) -> tuple[int, int]:
    """Return how many of the run's inputs are in the chat, and the number of our last message."""
    sent, number = 0, -1
    for item in items:
        if item.type == "user" and item.id and (place := last_place(item.id, run)) is not None:
            sent, number = max(sent, place + 1), max(number, item.no)
    return sent, number


def message_id(run: str, first: int, last: int) -> str:
    """Return an id that names the run and the inputs that a message carries, so that the message can be found again
    and is not sent twice."""
    return f"{run}.{first}-{last}"


def last_place(id_: str, run: str) -> int | None:
    owner, _, places = id_.rpartition(".")
    last = places.rpartition("-")[2]
    return int(last) if owner == run and last.isdigit() and last.isascii() else None


def owner(items: Iterable[ChatItem]) -> str:
    """Return the run that sent the last user message of a chat; for a message from elsewhere, its own prefix."""
    users = [item for item in items if item.type == "user"]
    return (max(users, key=lambda item: item.no).id or "").rpartition(".")[0] if users else ""


# Files sent to Agent-Zero and fetched from it: their names, and which ones may be fetched.

MAX_FILES = 20
# The pattern can match only where no character of a path stands before, so that the search takes linear time.
_PATH = re.compile(r"(?<![\w/.~+@-])/(?:[\w.+@-]+/)*[\w+@-][\w.+@-]*")


def spoken(messages: Sequence[Message], run: str) -> tuple[str, list[ChatFile]]:
    """Return the content of the messages as one text, and their files."""
    lines: list[str] = []
    files: list[ChatFile] = []
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


def _file(part: Part, run: str, number: int) -> ChatFile:
    """Make a file with a unique name: all uploads go to one folder, and tasks must not overwrite each other's files."""
    kind = part.media_type or "application/octet-stream"
    name = re.sub(r"[^\w.+@ -]", "_", part.filename or f"file-{number}{mimetypes.guess_extension(kind) or ''}")
    own = hashlib.sha256(f"{run}/{number}".encode()).hexdigest()[:8]
    content = part.raw if part.raw is not None else (part.text or "").encode()
    return ChatFile(f"{own}-{name[-200:]}", content, kind)


def fetched(made: Iterable[str], directory: str, answer: str, roots: Sequence[str]) -> list[str]:
    """Return the paths of an answer's files below the roots: those that a report lists, and those in its text."""
    paths = [*(posixpath.join(directory or "/", one) for one in made), *_PATH.findall(answer)]
    cleaned = (posixpath.normpath(path.rstrip(".")) for path in paths)
    return list(dict.fromkeys(path for path in cleaned if _is_below(path, roots)))[:MAX_FILES]


def _is_below(path: str, roots: Sequence[str]) -> bool:
    return any(path.startswith(f"{root.rstrip('/')}/") for root in roots)


def artifact(path: str, content: bytes | Large, roots: Sequence[str]) -> ArtifactChunk:
    """Return a file as an artifact. Its id depends only on its path, so that new content replaces older content."""
    name = posixpath.basename(path)
    inner = min((posixpath.relpath(path, root) for root in roots if _is_below(path, [root])), key=len, default=name)
    size, held = (content.size, None) if isinstance(content, Large) else (len(content), content)
    made = MadeFile(name, inner, media_type_of(name), size, held)
    id_ = f"file-{hashlib.sha256(path.encode()).hexdigest()[:12]}"
    return ArtifactChunk(made.part, id_, made.name, metadata=made.metadata)
