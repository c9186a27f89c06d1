"""A node's declared command: an argument list, in which a message can be nothing but an argument that was checked."""

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
"""What follows these is code to many programs, and a message is not."""
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh", "busybox", "pwsh", "powershell", "cmd"))
_LAUNCHERS = frozenset(
    (
        "env", "xargs", "parallel", "nice", "ionice", "nohup", "timeout", "time", "setsid", "stdbuf", "watch", "script",
        "sudo", "doas", "su", "chroot", "unshare", "nsenter", "ssh", "find", "strace",
    )
)  # fmt: skip
"""These run what their arguments name."""
MAX_PATH = 4096
"""No path is longer (Linux: PATH_MAX)."""
_RUN = re.compile(r"[\w.@+=~/:\\-]++")
"""Everything between two characters that no path holds. Runs do not overlap, so each character is looked at once."""
_PATH = re.compile(
    r"(?:[@+=]|-{0,2}+\w{1,40}+=)?"
    r"((?:\.{1,2}/|/)[\w.@+=~/-]*\w|[\w-][\w.-]*(?:/[\w.-]+)*\.[A-Za-z][A-Za-z0-9]{0,7}(?![\w/]))"
)
"""A path at the beginning of a run, also as `@path` or `--name=path`."""
_NAME = re.compile(
    r"(?:called|named|module|script|branch|image)\s++(?!called\b|named\b)[\"'`]?([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})"
)
_UNSAFE_NAME = re.compile(r"\.\.|\.lock$|[.-]$")


class Given(Struct, frozen=True):
    """What placeholders stand for: the newest words first, the folder of the task, and that of the organisation."""

    texts: tuple[str, ...]
    work: Path
    organisation: Path
    roots: Roots


def arguments(command: tuple[str, ...], given: Given) -> tuple[str, ...]:
    """The program's path and its arguments; CommandRefused says which of them cannot be."""
    check_command(command)
    program = _program(command[0], given)
    return (program, *(_argument(one, given) for one in command[1:]))


def check_command(command: tuple[str, ...]) -> None:
    """What can be said of a command before there is a message."""
    if not command or not command[0].strip() or any("\0" in one for one in command):
        raise CommandRefused("A command is a list: a program and its arguments.")
    if Path(command[0]).name in _SHELLS:
        raise CommandRefused(f"{Path(command[0]).name} is a shell; name the program itself and its arguments.")
    if _holders(command[0]) - {"{python}", "{organisation}"}:
        raise CommandRefused("Which program is run is not for a message to say.")
    if Path(command[0]).name in _LAUNCHERS:
        _check_launched(command)
    for before, one in pairwise(command):
        _check_argument(before, one)


def _check_launched(command: tuple[str, ...]) -> None:
    """What a program runs for its arguments is bound by the same rules as a program that is named itself."""
    if any(_holders(one) - set(_FIXED) for one in command[1:]):
        raise CommandRefused(f"{Path(command[0]).name} runs other programs; which ones is not for a message to say.")
    if shell := next((name for one in command[1:] if (name := Path(one).name) in _SHELLS), None):
        raise CommandRefused(f"{shell} is a shell; name the program itself and its arguments.")


def _check_argument(before: str, argument: str) -> None:
    holders = _holders(argument)
    from_message = holders - set(_FIXED)
    if from_message and argument not in from_message:
        raise CommandRefused(f"{argument!r}: what comes from a message is an argument by itself.")
    if from_message and before in _CODE:
        raise CommandRefused(f"What follows {before} may be run as code, and a message is not.")
    if holders and not from_message and not argument.startswith(_FIXED):
        raise CommandRefused(f"{argument!r}: a folder stands at the beginning of an argument.")


def _holders(argument: str) -> set[str]:
    return {match[0] for match in _HOLDER.finditer(argument)}


def _program(name: str, given: Given) -> str:
    if name == "{python}":
        return sys.executable
    if name.startswith("{organisation}/"):
        return str(_of_organisation(name, given))
    if "/" in name:
        return str(given.organisation / name)
    found = shutil.which(name)
    if found is None:
        raise CommandRefused(f"There is no program {name} on this machine.")
    return found


def _argument(argument: str, given: Given) -> str:
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


def _of_organisation(argument: str, given: Given) -> Path:
    path = (given.organisation / argument.removeprefix("{organisation}").lstrip("/")).resolve()
    if not path.is_relative_to(given.organisation.resolve()):
        raise CommandRefused(f"{argument!r} leads out of the organisation's folder.")
    return path


def _text(given: Given) -> str:
    """One line that no program takes for an option."""
    words = " ".join("".join(char if char.isprintable() else " " for char in given.texts[0][: MAX_TEXT * 4]).split())
    return words.lstrip("-–— ")[:MAX_TEXT]


def _path(given: Given, otherwise: Path | None = None) -> Path:
    found = _first(given, paths_in)
    if found is not None:
        return given.roots.inside(found)
    if otherwise is None:
        raise OutsideRoots("The message names no file.")
    return otherwise


def _name(given: Given) -> str:
    return _first(given, names_in) or "task"


def _first(given: Given, found_in: Callable[[str], Iterator[str]]) -> str | None:
    return next((one for text in given.texts for one in found_in(text)), None)


def paths_in(text: str) -> Iterator[str]:
    """What looks like a path; what that means is for the roots to say."""
    return (match[1] for run in runs_in(text) if (match := _PATH.match(run)) is not None)


def runs_in(text: str) -> Iterator[str]:
    """The pieces of a text that may begin with a path. Each is searched once, from its beginning only, so the work
    grows with the length of the text, whatever is in it."""
    return (run[0] for run in _RUN.finditer(text[:MAX_READ]) if len(run[0]) <= MAX_PATH)


def names_in(text: str) -> Iterator[str]:
    found = (match[1].rstrip(".-") for match in _NAME.finditer(text[:MAX_READ]))
    return (name for name in found if name and not _UNSAFE_NAME.search(name))
