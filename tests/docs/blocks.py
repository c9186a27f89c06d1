"""A page as what can be checked about it: its blocks of code, and what its hidden comments say about them.

Comments that are understood, each before the block it is about:

    <!-- not run: why -->     the block is not carried out; tests/docs/not_run.py has to know it too
    <!-- runs on: TEXT -->    it is a server: it is up when it has written TEXT, and goes on until the page has ended
    <!-- file: NAME -->       its text is this file (a first line `# NAME` says so too)
    <!-- prepare … -->        commands that the reader need not see, carried out where they stand
"""

import re
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

LANGUAGES = {"console", "sh", "python", "js", "yaml", "toml", "json", "text", "diff"}
_COMMENT = re.compile(r"<!--\s*(not run|runs on|file|prepare)\b:?\s*(.*?)\s*-->", re.DOTALL)
_NAMED = re.compile(r"^(?:#|//) ([\w./-]+\.\w+|Dockerfile)(?: .*)?$")


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str
    how: str = ""
    """Which comment stands before it, if one does."""
    word: str = ""
    """Text of the comment."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def first(self) -> str:
        return self.text.strip().split("\n", 1)[0]

    @property
    def file(self) -> str | None:
        """The file that it shows."""
        if self.how == "file":
            return self.word
        found = _NAMED.match(self.first)
        return found[1] if found and self.language not in ("console", "sh", "text") else None


def blocks(file: Path, name: str) -> list[Block]:
    found: list[Block] = []
    how, word = "", ""
    for token in MarkdownIt("commonmark").enable("table").parse(file.read_text("utf-8")):
        if token.type == "html_block" and (comment := _COMMENT.search(token.content)):
            how, word = comment[1], comment[2]
            if how == "prepare":
                found.append(Block(name, _line(token), "prepare", word))
                how = ""
        elif token.type in ("fence", "code_block"):
            language = token.info.split()[0] if token.info.strip() else "" if token.type == "fence" else "indented"
            found.append(Block(name, _line(token), language, token.content, how, word))
            how, word = "", ""
    return found


def _line(token: Token) -> int:
    return (token.map or [0])[0] + 1


class Step(NamedTuple):
    command: str
    shown: list[str]


def steps(text: str) -> list[Step]:
    """The commands of a `console` block (`$ `, continued by `> `), each with what is shown below it."""
    found: list[Step] = []
    for line in text.rstrip("\n").split("\n"):
        if line.startswith("$ "):
            found.append(Step(line[2:], []))
        elif line.startswith("> ") and found and not found[-1].shown:
            found[-1] = Step(f"{found[-1].command}\n{line[2:]}", [])
        elif found:
            found[-1].shown.append(line)
        else:
            raise ValueError(f"there is no command before {line!r}")
    return found
