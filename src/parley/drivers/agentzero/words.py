"""What Agent-Zero says of a chat, in plain values: by whichever of its interfaces it came."""

from msgspec import Struct


class Item(Struct, frozen=True):
    """An entry of a chat's log. It may still change; its number stays."""

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
    """The answer to `poll`: what has changed in one chat since a version of its log, and which chats there are."""

    log_guid: str
    log_version: int
    logs: tuple[Item, ...] = ()
    contexts: tuple[Chat, ...] = ()
    deselect_chat: bool = False
    log_progress_active: bool = False
    paused: bool = False


class Log(Struct, frozen=True):
    guid: str
    total_items: int
    progress_active: bool = False
    items: tuple[Item, ...] = ()


class LogReply(Struct, frozen=True):
    """The answer to `api_log_get`."""

    log: Log


class Answer(Struct, frozen=True):
    """The answer to `api_message`: it comes when the work is done."""

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
    """A chat at one moment. `version` is where the next look goes on; None when each look shows everything."""

    items: tuple[Item, ...] = ()
    running: bool = False
    known: bool = True
    """False when Agent-Zero has no such chat."""
    guid: str = ""
    version: int = 0


class File(Struct, frozen=True):
    """A file on its way to or from Agent-Zero."""

    name: str
    content: bytes
    media_type: str = "application/octet-stream"


class Large(Struct, frozen=True):
    """A file that is too large to be fetched."""

    size: int


def looked(poll: Poll, context: str) -> Look:
    """Older ones do not say which chats run: there the progress tells."""
    chat = next((one for one in poll.contexts if one.id == context), None)
    running = poll.log_progress_active if chat is None or chat.running is None else chat.running
    return Look(poll.logs, running, not poll.deselect_chat, poll.log_guid, poll.log_version)
