"""What differs between systems: the signals that stop a program, and how a path or a command is written."""

import sys
from collections.abc import Callable

WINDOWS = sys.platform == "win32"
STOP = ("SIGINT", "SIGTERM", "SIGBREAK")
"""SIGBREAK is Windows' own: Ctrl+Break, and how a program there stops another one."""


def heed_signals(heed: Callable[[], None], names: tuple[str, ...] = STOP) -> None:
    """Call it in the loop at each of these signals, as far as the system has them."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    for number in [getattr(signal, name) for name in names if hasattr(signal, name)]:
        try:
            loop.add_signal_handler(number, heed)
        except NotImplementedError:
            # Loops on Windows have no handlers of their own.
            signal.signal(number, lambda _number, _frame: loop.call_soon_threadsafe(heed))


def split_command(command: str) -> list[str]:
    """A program and its arguments, as a shell would read them; on Windows a backslash is part of a path."""
    import shlex

    if not WINDOWS:
        return shlex.split(command)
    return [_unquoted(word) for word in shlex.split(command, posix=False)]


def _unquoted(word: str) -> str:
    quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "\"'"
    return word[1:-1] if quoted else word
