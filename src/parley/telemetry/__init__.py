"""The seam through which the engine tells what happens, and how long it took. Loggers, tracers and counters attach to
it."""

from collections.abc import Callable
from time import perf_counter_ns, time_ns
from types import TracebackType
from typing import Any, Protocol

from parley.telemetry.trace import Trace, current, enter

Handler = Callable[[str, dict[str, Any]], None]
Detach = Callable[[], None]


class Opened(Protocol):
    """A span of an exporter, while it lasts."""

    @property
    def trace(self) -> Trace:
        """What is carried on from here: the same trace, with this span as the parent."""
        ...

    def end(self, at_ns: int, fields: dict[str, Any]) -> None: ...


Exporter = Callable[[str, Trace, int], Opened]
"""Opens a span with a name, the trace that it is part of, and when it began."""

_handlers: list[Handler] = []
_exporters: list[Exporter] = []


def attach(handler: Handler) -> Detach:
    """Call `handler(name, fields)` for everything told from now on; the result detaches it."""
    _handlers.append(handler)
    return lambda: _handlers.remove(handler)


def export(exporter: Exporter) -> Detach:
    """Let it have a span of its own for each of ours, and so a place in the trace. The latest one is asked."""
    _exporters.append(exporter)
    return lambda: _exporters.remove(exporter)


def tell(name: str, /, **fields: Any) -> None:
    for handler in _handlers:
        handler(name, fields)


def span(name: str, /, **fields: Any) -> "Span":
    """`with span("runtime.tool", tool=name):` tells `span.ended` at the end, with how long it took and what came of it.

    What is started within it, and what it calls, is part of it in the trace, if somebody exports spans.
    """
    return Span(name, fields)


class Span:
    __slots__ = ("_before", "_began", "_fields", "_name", "_opened", "_started", "outcome")

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self._name = name
        self._fields = fields
        self._started = 0
        self.outcome = ""
        """What came of it, in a word, where there is a better one than ok, refused, error or canceled."""

    def __enter__(self) -> "Span":
        if _handlers or _exporters:
            self._started = time_ns()
            self._before = before = current()
            self._opened = None
            if _exporters:
                self._opened = _exporters[-1](self._name, before, self._started)
                enter(self._opened.trace)
            self._began = perf_counter_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._started:
            return
        ended = self._started + perf_counter_ns() - self._began
        fields, trace = self._fields, self._before
        fields["outcome"] = self.outcome or _outcome(error, fields)
        if self._opened is not None:
            trace = self._opened.trace
            self._opened.end(ended, fields)
            enter(self._before)
        fields |= {"name": self._name, "started_ns": self._started, "ended_ns": ended, "trace": trace}
        for handler in _handlers:
            handler("span.ended", fields)


def _outcome(error: BaseException | None, fields: dict[str, Any]) -> str:
    """An error with a code is an answer. What interrupts a task or a generator is no exception in Python's sense."""
    if error is None:
        return "ok"
    if isinstance(code := getattr(error, "code", None), str):
        fields["code"] = code
        return "refused"
    return "error" if isinstance(error, Exception) else "canceled"
