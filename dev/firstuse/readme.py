"""The README as a list of things to do.

A block of `console` is a terminal: what stands after `$ ` is typed, and the lines below are what is shown then. A line
`…` stands for any lines. A command whose last line is `…` goes on running, and what follows is typed in another
terminal. A block of any other language whose first line is a comment with a path is a file of that name. A paragraph
with an address in angle brackets is a page to open: whatever stands in backquotes after the address is seen on it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

REST = "…"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^(?:#|//) (\S+\.\w+)\n")
_PAGE = re.compile(r"<(http://127\.0\.0\.1[^>]*)>")
_SEEN = re.compile(r"`([^`]+)`")
_HEADING = re.compile(r"^#+ (.+)$")


@dataclass(frozen=True)
class Typed:
    line: str
    shown: tuple[str, ...]
    place: str = ""

    @property
    def stays(self) -> bool:
        """True if the command keeps running."""
        return self.shown[-1:] == (REST,)


@dataclass(frozen=True)
class Written:
    path: str
    text: str


@dataclass(frozen=True)
class Opened:
    url: str
    seen: tuple[str, ...]


Step = Typed | Written | Opened


@dataclass
class _Reader:
    place: str = ""
    steps: list[Step] = field(default_factory=list)

    def prose(self, text: str) -> None:
        for paragraph in re.split(r"\n\s*\n", text):
            if heading := _HEADING.match(paragraph.strip()):
                self.place = heading[1]
            for page in _PAGE.finditer(paragraph):
                seen = _SEEN.findall(" ".join(paragraph[page.end() :].split()))
                self.steps.append(Opened(page[1], tuple(seen)))

    def block(self, language: str, body: str) -> None:
        if language == "console":
            self.steps += _typed(body, self.place)
        elif named := _FILE.match(body):
            self.steps.append(Written(named[1], body))


def read(text: str) -> list[Step]:
    reader, end = _Reader(), 0
    for fence in _FENCE.finditer(text):
        reader.prose(text[end : fence.start()])
        reader.block(fence[1], fence[2])
        end = fence.end()
    reader.prose(text[end:])
    return reader.steps


def _typed(body: str, place: str) -> Iterator[Typed]:
    line, shown = "", list[str]()
    for one in body.splitlines():
        if one.startswith("$ "):
            if line:
                yield Typed(line, _trimmed(shown), place)
            line, shown = one[2:], []
        else:
            shown.append(one.rstrip())
    if line:
        yield Typed(line, _trimmed(shown), place)


def _trimmed(lines: list[str]) -> tuple[str, ...]:
    while lines and not lines[-1]:
        lines = lines[:-1]
    return tuple(lines)
