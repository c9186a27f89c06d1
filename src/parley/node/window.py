"""How often a node fails, as its heartbeat says: of the last minute, and only what is its own fault."""

import time
from collections import deque
from collections.abc import Callable

import httpx2

WINDOW_S = 60.0
MAX_SAMPLE = 300


class ErrorWindow:
    """What was tried in the last seconds, and how much of it failed. Contract 004 counts answers of 500 and above,
    timeouts and broken connections; what a caller did wrong is a success of this kind."""

    def __init__(self, seconds: float = WINDOW_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._tries: deque[tuple[float, str]] = deque()
        self._failed = 0

    def answered(self, status: int, what: str = "") -> None:
        """Somebody was answered, here or by somebody else."""
        self._note(f"{what} answered {status}".strip() if status >= 500 else "")

    def raised(self, error: BaseException, what: str = "") -> None:
        """A call ended with an error; one that says nothing of a connection or a time is not counted as failed."""
        broke = isinstance(error, OSError | httpx2.TransportError)
        self._note(f"{what}: {type(error).__name__}".lstrip(": ") if broke else "")

    def failed(self, why: str) -> None:
        self._note(why or "failed")

    @property
    def rate(self) -> float:
        self._forget()
        return self._failed / len(self._tries) if self._tries else 0.0

    @property
    def sample(self) -> str:
        """The latest of what failed; empty when nothing did."""
        self._forget()
        return next((why for _, why in reversed(self._tries) if why), "") if self._failed else ""

    def _note(self, why: str) -> None:
        self._forget()
        self._tries.append((self._clock(), why[:MAX_SAMPLE]))
        self._failed += bool(why)

    def _forget(self) -> None:
        since = self._clock() - self._seconds
        while self._tries and self._tries[0][0] <= since:
            _, why = self._tries.popleft()
            self._failed -= bool(why)
