"""Commands of workflow nodes: argument lists. Text from a message can only become a checked argument."""

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from parley.errors import CommandRefused, OutsideRoots
from parley.orgkernel.files import Roots

MAX_OUTPUT = 1024 * 1024
MAX_TIMEOUT_S = 600.0
MAX_TEXT = 500
MAX_READ = 20_000
_HOLDER = re.compile(r"\{(text|path\??|name|work|python|organisation)\}")
_FIXED = ("{python}", "{organisation}", "{work}")
_CODE = ("-c", "-e", "-m", "--eval", "--exec", "--command", "-E", "-p", "--print", "-r")
"""Options whose argument many programs run as code; text from a message must not follow them."""
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh", "busybox", "pwsh", "powershell", "cmd"))
_LAUNCHERS = frozenset(
    (
        "env", "xargs", "parallel", "nice", "ionice", "nohup", "timeout", "time", "setsid", "stdbuf", "watch", "script",
        "sudo", "doas", "su", "chroot", "unshare", "nsenter", "ssh", "find", "strace",
    )
)  # fmt: skip
"""Programs that run other programs named in their arguments."""
MAX_PATH = 4096
"""Maximum length of a path (Linux: PATH_MAX)."""
_RUN = re.compile(r"[\w.@+=~/:\\-]++")
"""A run of characters that a path can contain. Runs do not overlap, so each character is read once."""
_PATH = re.compile(
    r"(?:[@+=]|-{0,2}+\w{1,40}+=)?"
    r"((?:\.{1,2}/|/)[\w.@+=~/-]*\w|[\w-][\w.-]*(?:/[\w.-]+)*\.[A-Za-z][A-Za-z0-9]{0,7}(?![\w/]))"
)
"""A path at the beginning of a run, also as `@path` or `--name=path`."""
_NAME = re.compile(
    r"(?:called|named|module|script|branch|image)\s++(?!called\b|named\b)[\"'`]?([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})"
)
_UNSAFE_NAME = re.compile(r"\.\.|\.lock$|[.-]$")


class CommandInput(Struct, frozen=True):
    """Values of placeholders: the messages, newest first, the folder of the task, and the organisation's folder."""

    texts: tuple[str, ...]
    work: Path
    organisation: Path
    roots: Roots


def arguments(command: tuple[str, ...], given: CommandInput) -> tuple[str, ...]:
    """Return the program's path and its arguments. Raises CommandRefused for an argument that is not allowed."""
    check_command(command)
    program = _program(command[0], given)
    return (program, *(_argument(one, given) for one in command[1:]))


def check_command(command: tuple[str, ...]) -> None:
    """Check a command without a message."""
    if not command or not command[0].strip() or any("\0" in one for one in command):
        raise CommandRefused("A command must be a list: a program and its arguments.")
    if Path(command[0]).name in _SHELLS:
        raise CommandRefused(f"{Path(command[0]).name} is a shell; name the program itself and its arguments.")
    if _holders(command[0]) - {"{python}", "{organisation}"}:
        raise CommandRefused("The program must not come from a message; name it in the command.")
    if Path(command[0]).name in _LAUNCHERS:
        _check_launched(command)
    for before, one in pairwise(command):
        _check_argument(before, one)


def _check_launched(command: tuple[str, ...]) -> None:
    """Check a command that runs another program: the same rules apply to that program."""
    if any(_holders(one) - set(_FIXED) for one in command[1:]):
        raise CommandRefused(f"{Path(command[0]).name} runs other programs; they must not come from a message.")
    if shell := next((name for one in command[1:] if (name := Path(one).name) in _SHELLS), None):
        raise CommandRefused(f"{shell} is a shell; name the program itself and its arguments.")


def _check_argument(before: str, argument: str) -> None:
    holders = _holders(argument)
    from_message = holders - set(_FIXED)
    if from_message and argument not in from_message:
        raise CommandRefused(f"{argument!r}: text from a message must be an argument of its own.")
    if from_message and before in _CODE:
        raise CommandRefused(f"The argument after {before} may run as code, so it must not come from a message.")
    if holders and not from_message and not argument.startswith(_FIXED):
        raise CommandRefused(f"{argument!r}: a folder placeholder must be at the beginning of an argument.")


def _holders(argument: str) -> set[str]:
    return {match[0] for match in _HOLDER.finditer(argument)}


def _program(name: str, given: CommandInput) -> str:
    if name == "{python}":
        return sys.executable
    if name.startswith("{organisation}/"):
        return str(_of_organisation(name, given))
    if "/" in name:
        return str(given.organisation / name)
    found = shutil.which(name)
    if found is None:
        raise CommandRefused(f"The program {name} is not installed on this machine.")
    return found


def _argument(argument: str, given: CommandInput) -> str:
    match argument:
        case "{text}":
            return _text(given)
        case "{path}":
            return str(_path(given))
        case "{path?}":
            return str(_path(given, given.work))
        case "{name}":
            return _name(given)
        case _ if argument.startswith("{organisation}"):
            return str(_of_organisation(argument, given))
        case _:
            return argument.replace("{work}", str(given.work)).replace("{python}", sys.executable)


def _of_organisation(argument: str, given: CommandInput) -> Path:
    path = (given.organisation / argument.removeprefix("{organisation}").lstrip("/")).resolve()
    if not path.is_relative_to(given.organisation.resolve()):
        raise CommandRefused(f"{argument!r} is outside the organisation's folder.")
    return path


def _text(given: CommandInput) -> str:
    """Return the newest message as one line that no program reads as an option."""
    words = " ".join("".join(char if char.isprintable() else " " for char in given.texts[0][: MAX_TEXT * 4]).split())
    return words.lstrip("-–— ")[:MAX_TEXT]


def _path(given: CommandInput, otherwise: Path | None = None) -> Path:
    found = _first(given, paths_in)
    if found is not None:
        return given.roots.inside(found)
    if otherwise is None:
        raise OutsideRoots("The message names no file.")
    return otherwise


def _name(given: CommandInput) -> str:
    return _first(given, names_in) or "task"


def _first(given: CommandInput, found_in: Callable[[str], Iterator[str]]) -> str | None:
    return next((one for text in given.texts for one in found_in(text)), None)


def paths_in(text: str) -> Iterator[str]:
    """Yield strings that look like paths. The roots decide whether they are allowed."""
    return (match[1] for run in runs_in(text) if (match := _PATH.match(run)) is not None)


def runs_in(text: str) -> Iterator[str]:
    """Yield the pieces of a text that may begin with a path. Each piece is searched only from its beginning, so the
    time is linear in the length of the text."""
    return (run[0] for run in _RUN.finditer(text[:MAX_READ]) if len(run[0]) <= MAX_PATH)


def names_in(text: str) -> Iterator[str]:
    found = (match[1].rstrip(".-") for match in _NAME.finditer(text[:MAX_READ]))
    return (name for name in found if name and not _UNSAFE_NAME.search(name))
