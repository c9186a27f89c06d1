"""What A2A speaks about, before any version of it is chosen: what is asked, and what is shown."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import UNSET, Raw, Struct, UnsetType

from parley.core.access import Principal
from parley.core.artifacts import Artifact
from parley.core.conversations import Message
from parley.core.events import Event
from parley.core.runs import Run, State
from parley.core.views import Said, Status
from parley.engine.hooks import Hook


class Call(Struct, frozen=True):
    """Who asks which agent, and what the transport's headers say.

    Without an agent the call came to the server's root: a new task goes to its default agent, and any task that
    the caller may see can be read, followed and canceled there.
    """

    agent: str | None
    principal: Principal
    key: str | None = None
    last_event_id: str | None = None
    extensions: frozenset[str] = frozenset()
    """The extensions that the caller says it speaks."""
    owner: Callable[[], Awaitable[Principal | None]] | None = None
    """Looks up the owner of the credential, where `auth` is `none` and the principal is everybody's."""


class HookRef(Struct, frozen=True):
    task: str
    id: str | None = None
    """None where a version of A2A lets it be left out: the first one."""


class Ask(Struct, frozen=True):
    """A message for an agent: a new task, or one more input to `task`."""

    message: Message
    task: str | None = None
    context: str | None = None
    history_length: int | None = None
    immediate: bool = False
    """Answer as soon as the task is accepted."""
    hook: Hook | None = None
    metadata: Raw | UnsetType = UNSET
    """Metadata of the request, beside that of its message."""
    output_modes: tuple[str, ...] = ()


class ForkAsk(Struct, frozen=True):
    """A copy of `task` up to the event `at`, and what it goes on with."""

    task: str
    at: int | None = None
    message: Message | None = None
    context: str | None = None


class Query(Struct, frozen=True):
    """Which tasks to list."""

    context: str | None = None
    state: State | None = None
    since: int | None = None
    page_size: int = 50
    page_token: str = ""
    history_length: int | None = None
    artifacts: bool = False


class TaskShown(Struct, frozen=True):
    run: Run
    status: Status
    history: Sequence[Said]
    artifacts: Sequence[Artifact]
    metadata: Raw | UnsetType = UNSET

    @property
    def size(self) -> int:
        """Messages and parts: rendering takes time in proportion to it."""
        return len(self.history) + sum(len(artifact.parts) for artifact in self.artifacts)


class ReplyShown(Struct, frozen=True):
    """A direct answer: it belongs to a context, and to no task."""

    run: Run
    said: Said


class UpdateShown(Struct, frozen=True):
    """An event of a task, with its bytes in place."""

    run: Run
    event: Event


Shown = TaskShown | ReplyShown | UpdateShown


class Page(Struct, frozen=True):
    tasks: list[TaskShown]
    next: str
    size: int
    total: int


class _In(Struct, frozen=True, rename="camel", kw_only=True):
    """Read from the wire, alike in every version: fields that are not known are ignored."""

    tenant: str | None = None


class TaskParams(_In, frozen=True, kw_only=True):
    id: str
    history_length: int | None = None


class CancelParams(_In, frozen=True, kw_only=True):
    id: str
    metadata: dict[str, object] | None = None


class CardParams(_In, frozen=True, kw_only=True):
    pass
