"""Lists of callbacks, and the callbacks for changes of runs."""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from parley.ids import RunId
from parley.runs.rules.events import Event, Progress
from parley.runs.rules.state import Run
from parley.telemetry import tell

# An object that reports something is constructed with such a list, and listeners add themselves to it.

Listener = TypeVar("Listener")


class Listeners(Generic[Listener]):
    """Callbacks in the order in which they were added. Adding or removing one does not affect a running iteration."""

    __slots__ = ("_listeners",)

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def __iter__(self) -> Iterator[Listener]:
        return iter(self._listeners)

    def add(self, listener: Listener) -> None:
        self._listeners = (*self._listeners, listener)

    def remove(self, listener: Listener) -> None:
        self._listeners = tuple(one for one in self._listeners if one != listener)

    @contextmanager
    def listening(self, listener: Listener) -> Generator[None, None, None]:
        """Keep a listener in the list for the duration of a block."""
        self.add(listener)
        try:
            yield
        finally:
            self.remove(listener)


GrowthListener = Callable[[RunId], None]
"""Called for every run that has grown, at any replica; must not block."""
ChangeListener = Callable[[Run, Sequence[Event]], None]
"""Called with the events that were added to a run at this replica; must not block."""
CancelListener = Callable[[Run], Coroutine[None, None, None]]
"""Started for a run that is to be canceled and that a paired runtime works on."""
ForgetListener = Callable[[RunId], Awaitable[None]]
"""Awaited before the events of a run are deleted, to delete data that is kept only as long as the events."""

RaisedListener = Callable[[Run, BaseException], Awaitable[None]]
"""Awaited with the exception that ended a turn of a run unexpectedly, before the run fails; must not raise."""

ReloadListener = Callable[[Sequence[str]], None]
"""Called with the slugs of the agents that changed when definitions were read again; must not block."""


class Watcher(Protocol):
    """Listens for the growth of some runs, and at times of none."""

    @property
    def watching(self) -> bool: ...

    def grown(self, run: RunId) -> None: ...


class RunListeners:
    def __init__(self) -> None:
        self.reloaded = Listeners[ReloadListener]()
        self.growth = Listeners[GrowthListener]()
        self.watchers = Listeners[Watcher]()
        self.change = Listeners[ChangeListener]()
        self.cancel = Listeners[CancelListener]()
        self.forget = Listeners[ForgetListener]()
        self.raised = Listeners[RaisedListener]()

    def grown(self, run: RunId) -> None:
        for listener in self.growth:
            listener(run)
        for watcher in self.watchers:
            watcher.grown(run)

    def hear_all(self) -> bool:
        """Return whether any listener needs the growth of all runs at all replicas now."""
        return any(True for _ in self.growth) or any(watcher.watching for watcher in self.watchers)


def tell_usage(run: Run, events: Sequence[Event]) -> None:
    """Tell telemetry the usage in events that were just written."""
    for event in events:
        if isinstance(event.payload, Progress) and (usage := event.payload.usage) is not None:
            tell(
                "usage.recorded",
                run=run.id,
                agent=run.agent,
                model=usage.model,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=usage.cached_tokens,
                cost=usage.cost,
            )
