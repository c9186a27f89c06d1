"""Differences between operating systems: stop signals, paths and command lines."""

import sys
from collections.abc import Callable

WINDOWS = sys.platform == "win32"
STOP = ("SIGINT", "SIGTERM", "SIGBREAK")
"""SIGBREAK exists on Windows only: Ctrl+Break, and the signal with which programs stop others there."""


def heed_signals(heed: Callable[[], None], names: tuple[str, ...] = STOP) -> None:
    """Call `heed` in the event loop on each of these signals that the system has."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    for number in [getattr(signal, name) for name in names if hasattr(signal, name)]:
        try:
            loop.add_signal_handler(number, heed)
        except NotImplementedError:
            # Event loops on Windows have no signal handlers.
            signal.signal(number, lambda _number, _frame: loop.call_soon_threadsafe(heed))


def split_command(command: str) -> list[str]:
    """Split a command line into program and arguments like a shell; on Windows a backslash is part of a path."""
    import shlex

    if not WINDOWS:
        return shlex.split(command)
    return [_unquoted(word) for word in shlex.split(command, posix=False)]


def _unquoted(word: str) -> str:
    quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "\"'"
    return word[1:-1] if quoted else word


def printable(text: str) -> str:
    """Text for a terminal, without control characters: text of other programs must not move the cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
