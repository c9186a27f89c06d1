"""The seam through which the engine tells what happens, and how long it took. Loggers, tracers and counters attach to
it."""

from collections.abc import Callable
from contextlib import suppress
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
_timers: list[Handler] = []
"""Those of them that want to know of spans."""
_exporters: list[Exporter] = []

_EPOCH_NS = time_ns() - perf_counter_ns()
"""Spans are measured by a clock that is never set."""


def attach(handler: Handler, *, spans: bool = True) -> Detach:
    """Call `handler(name, fields)` for everything told from now on; the result detaches it."""
    _handlers.append(handler)
    if spans:
        _timers.append(handler)

    def detach() -> None:
        _handlers.remove(handler)
        if spans:
            _timers.remove(handler)

    return detach


def export(exporter: Exporter) -> Detach:
    """Let it have a span of its own for each of ours, and so a place in the trace. The latest one is asked."""
    _exporters.append(exporter)
    return lambda: _exporters.remove(exporter)


def exporting() -> bool:
    """Whether somebody has spans of their own for ours: some are of use to nobody else."""
    return bool(_exporters)


FAILED = "telemetry.failed"


def tell(name: str, /, **fields: Any) -> None:
    """Call every handler. Never raises: a log on a full disk must not stop the work that it is about."""
    _call_all(_handlers, name, fields)


def _call_all(handlers: list[Handler], name: str, fields: dict[str, Any]) -> None:
    for handler in handlers:
        try:
            handler(name, fields)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            _report_failed(handler, error)


def _report_failed(failed: Handler | None, error: Exception) -> None:
    """Let the other handlers know that one has failed, so that it is at least counted."""
    for handler in _handlers:
        if handler is not failed:
            with suppress(Exception):
                handler(FAILED, {"code": type(error).__name__})


class Span:
    """`with span("runtime.tool", tool=name):` tells `span.ended` at the end, with how long it took and what came of it.

    What is started within it, and what it calls, is part of it in the trace, if somebody exports spans.
    """

    __slots__ = ("_before", "_fields", "_name", "_opened", "_started", "outcome")

    def __init__(self, name: str, /, **fields: Any) -> None:
        self._name = name
        self._fields = fields
        self._opened: Opened | None = None
        self.outcome = ""
        """What came of it, in a word, where there is a better one than ok, refused, error or canceled."""

    def note(self, **fields: Any) -> None:
        """What is known only later."""
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
    """An error with a code is an answer. What interrupts a task or a generator is no exception in Python's sense."""
    if isinstance(code := getattr(error, "code", None), str):
        fields["code"] = code
        return "refused"
    return "error" if isinstance(error, Exception) else "canceled"
