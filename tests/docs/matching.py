"""Compares the output of a command with the page.

`…` stands for anything within a line, a line of `…` alone for any lines. Times may differ. An id that the page shows (a
task's, a code, a token) stands for the one that was printed in its place, from then on also in commands. A line that
says that a task is queued is ignored: an agent that has just ended another task may be busy for a moment. So is the
doctor's note about the Python version.
"""

import re
from itertools import pairwise

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_CODE = r"\b[0-9A-Z]{4}(?:-[0-9A-Z]{4}){3}\b"
_ID = rf"{_UUID}|{_CODE}|parley_[\w-]{{20,}}|\b[0-9a-f]{{32,64}}\b"
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?"
_PASSING = re.compile(
    r"^(?:submitted: Waiting for its turn: number \d+ in the queue\.|note python_slow_cookies: .*)\n", re.MULTILINE
)
_TOKEN = re.compile(rf"(?P<id>{_ID})|(?P<time>{_TIME})|(?P<any>…)")


class Differs(AssertionError):
    pass


def expression(line: str, known: dict[str, str], ids: list[str]) -> str:
    """A pattern for one line; `ids` collects the ids that it has groups for."""
    pattern, at = "", 0
    for token in _TOKEN.finditer(line):
        pattern += re.escape(line[at : token.start()])
        at = token.end()
        if token.lastgroup != "id":
            pattern += _TIME if token.lastgroup == "time" else ".*?"
        elif token[0] in known:
            pattern += re.escape(known[token[0]])
        else:
            pattern += f"({_ID})"
            ids.append(token[0])
    return pattern + re.escape(line[at:].rstrip()) + r"\s*"


def compare(shown: list[str], printed: str, known: dict[str, str]) -> None:
    """Raises Differs; else adds the ids of this output to those known."""
    ids: list[str] = []
    lines = [r"(?:.*\n)*?" if line.strip() == "…" else expression(line, known, ids) + r"\n" for line in shown]
    printed = _PASSING.sub("", printed)
    found = re.fullmatch("".join(lines), printed.rstrip("\n") + "\n" if printed.strip() else "\n" * bool(shown))
    if found is None:
        raise Differs("\n".join(["the page shows:", *shown, "but this was printed:", printed]))
    _learn(ids, list(found.groups()), known)


def _learn(ids: list[str], printed: list[str], known: dict[str, str]) -> None:
    known |= dict(zip(ids, printed, strict=True))
    for (a, x), (b, y) in pairwise(sorted(zip(ids, printed, strict=True))):
        if a == b and x != y:
            raise Differs(f"the page shows {a} twice, but {x} and {y} were printed")


def spoken(command: str, known: dict[str, str]) -> str:
    """The command with the ids that were really printed."""
    for shown, actual in known.items():
        command = command.replace(shown, actual)
    return command
