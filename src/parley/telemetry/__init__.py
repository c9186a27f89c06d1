"""Telemetry of the engine: events and durations. Loggers, tracers and counters attach to it."""

from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns, time_ns
from types import TracebackType
from typing import Any, Protocol

from parley.telemetry.trace import Trace, current, enter

__all__ = ["attach", "span", "tell"]

Handler = Callable[[str, dict[str, Any]], None]
Detach = Callable[[], None]


class Opened(Protocol):
    """An open span of an exporter."""

    @property
    def trace(self) -> Trace:
        """The trace to pass on to called services: the same trace, with this span as the parent."""
        ...

    def end(self, at_ns: int, fields: dict[str, Any]) -> None: ...


Exporter = Callable[[str, Trace, int], Opened]
"""Opens a span. Arguments: its name, the trace that it belongs to, and its start time (ns)."""

_handlers: list[Handler] = []
_timers: list[Handler] = []
"""The handlers that also receive spans."""
_exporters: list[Exporter] = []

_EPOCH_NS = time_ns() - perf_counter_ns()
"""Offset to wall-clock time. Spans are measured by a monotonic clock, which is never adjusted."""


def attach(handler: Handler, *, spans: bool = True) -> Detach:
    """Call `handler(name, fields)` for every event from now on. Return a function that detaches the handler."""
    _handlers.append(handler)
    if spans:
        _timers.append(handler)

    def detach() -> None:
        _handlers.remove(handler)
        if spans:
            _timers.remove(handler)

    return detach


def export(exporter: Exporter) -> Detach:
    """Let `exporter` open a span of its own for each of ours, which then is part of the trace. With several exporters,
    only the newest is used."""
    _exporters.append(exporter)
    return lambda: _exporters.remove(exporter)


def exporting() -> bool:
    """Return whether an exporter is attached. Some spans are only useful to an exporter."""
    return bool(_exporters)


FAILED = "telemetry.failed"


def tell(name: str, /, **fields: Any) -> None:
    """Send an event to every handler. Never raises: a log on a full disk must not stop the work that it reports."""
    _call_all(_handlers, name, fields)


def _call_all(handlers: list[Handler], name: str, fields: dict[str, Any]) -> None:
    for handler in handlers:
        try:
            handler(name, fields)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            _report_failed(handler, error)


def _report_failed(failed: Handler | None, error: Exception) -> None:
    """Report the failure of a handler to the other handlers, so that it is at least counted."""
    for handler in _handlers:
        if handler is not failed:
            with suppress(Exception):
                handler(FAILED, {"code": type(error).__name__})


class Span:
    """`with span("runtime.tool", tool=name):` sends `span.ended` at the end, with the duration and the outcome.

    If an exporter is attached, everything that is started or called within the span is part of it in the trace.
    """

    __slots__ = ("_before", "_fields", "_name", "_opened", "_started", "outcome")

    def __init__(self, name: str, /, **fields: Any) -> None:
        self._name = name
        self._fields = fields
        self._opened: Opened | None = None
        self.outcome = ""
        """The outcome as one word, where ok, refused, error or canceled is not precise enough."""

    def note(self, **fields: Any) -> None:
        """Add fields that are known only after the start."""
        self._fields.update(fields)

    def __enter__(self) -> "Span":
        self._started = perf_counter_ns()
        if _exporters:
            self._before = current()
            try:
                self._opened = _exporters[-1](self._name, self._before, self._started + _EPOCH_NS)
            except Exception as failure:  # noqa: BLE001 - an exporter may raise anything
                _report_failed(None, failure)
            else:
                enter(self._opened.trace)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended, fields = perf_counter_ns(), self._fields
        fields["outcome"] = self.outcome or ("ok" if error is None else _outcome(error, fields))
        if self._opened is not None:
            try:
                self._opened.end(ended + _EPOCH_NS, fields)
            except Exception as failure:  # noqa: BLE001 - an exporter may raise anything
                _report_failed(None, failure)
        if _timers:
            fields["name"] = self._name
            fields["started_ns"] = self._started + _EPOCH_NS
            fields["ended_ns"] = ended + _EPOCH_NS
            fields["trace"] = current()
            _call_all(_timers, "span.ended", fields)
        if self._opened is not None:
            enter(self._before)


span = Span


def _outcome(error: BaseException, fields: dict[str, Any]) -> str:
    """Return the outcome of a span that raised. An error with a `code` is a refusal. Cancellation of a task or a
    generator is not an Exception in Python."""
    if isinstance(code := getattr(error, "code", None), str):
        fields["code"] = code
        return "refused"
    return "error" if isinstance(error, Exception) else "canceled"
