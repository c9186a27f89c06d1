"""From a chat's log to what our turn yields. Pure: what was shown once is not shown again."""

import re
from collections.abc import Iterable

from msgspec import Struct

from parley.core.sanitising import sanitised_error
from parley.core.turns import Status
from parley.drivers.agentzero.words import Item

_ICON = re.compile(r"icon://\S*\s*")
# Each begins only where no character of its own stands before, so that a text is searched in linear time.
_METER = re.compile(r"(?<![|\s])[|\s]++\Z")
_ERROR = re.compile(r"(?<![A-Za-z_.])[A-Za-z_.]*(?:Error|Exception)\b")
_SILENT = frozenset(("user", "response", "error", "util", "input"))
"""What the chat's log has besides what the agent does."""


class Course(Struct):
    """What is known of one piece of work: the chat's log after the message that began it."""

    mine: int = -1
    """The number of our newest message."""
    shown: int = -1
    """The number of the latest item of which our log has something."""
    items: dict[int, Item] = {}
    last: str = ""

    def forget(self) -> None:
        """The log was written anew: read it again, and show only what is new in it."""
        self.items = {}

    def heard(self, items: Iterable[Item]) -> list[Status]:
        """The items as they are now. What they say that was not said before is to be shown, with a mark."""
        outputs: list[Status] = []
        for item in items:
            before, self.items[item.no] = self.items.get(item.no), item
            words = "" if item.type in _SILENT else plain(item.heading or "")
            if item.no <= self.mine or not words or words == self.last:
                continue
            if item.no > self.shown or (before is not None and plain(before.heading or "") != words):
                self.last, self.shown = words, max(self.shown, item.no)
                outputs.append(Status(words, str(item.no)))
        return outputs

    @property
    def response(self) -> str | None:
        """The first agent's last answer to our message, unless its work broke down afterwards."""
        for item in sorted(self.items.values(), key=lambda item: item.no, reverse=True):
            if item.no <= self.mine or item.type == "error":
                return None
            if item.type == "response" and not item.agentno and item.content:
                return item.content
        return None

    @property
    def responses(self) -> list[str]:
        """All that was answered to our message, also before the work broke down."""
        found = [item for item in self.items.values() if item.type == "response" and item.no > self.mine]
        return [item.content for item in found if item.content]

    @property
    def error(self) -> str | None:
        """What stopped the work: whole, for the operator."""
        errors = [item for item in self.items.values() if item.type == "error" and item.no > self.mine]
        return (max(errors, key=lambda item: item.no).content or "") if errors else None

    @property
    def deeds(self) -> list[str]:
        """What the agent did, in its own words."""
        done = sorted((item for item in self.items.values() if item.no > self.mine), key=lambda item: item.no)
        said = [plain(item.heading or "") for item in done if item.type not in (*_SILENT, "warning")]
        return list(dict.fromkeys(words for words in said if words))

    @property
    def failures(self) -> list[str]:
        """What went wrong on the way; of a warning without a heading, only its kind."""
        found = [item for item in self.items.values() if item.type == "warning" and item.no > self.mine]
        return [plain(item.heading or "") or f"A step ended with {kind_of(item.content or '')}." for item in found]


def plain(heading: str) -> str:
    """Without the signs that are meant for a web page, and without secrets."""
    return sanitised_error(_METER.sub("", _ICON.sub("", heading)).strip())


def kind_of(error: str) -> str:
    """The kind of an error, and nothing else of it: its text may hold anything."""
    found = _ERROR.search(error)
    return found[0].rpartition(".")[2] if found else "error"


def newest(items: Iterable[Item], run: str) -> tuple[int, int]:
    """Of our messages in a chat: how many inputs they have carried over, and the number of the last of them."""
    sent, number = 0, -1
    for item in items:
        if item.type == "user" and item.id and (place := last_place(item.id, run)) is not None:
            sent, number = max(sent, place + 1), max(number, item.no)
    return sent, number


def message_id(run: str, first: int, last: int) -> str:
    """Says which inputs of which run a message carries, so that it can be found again and is not sent twice."""
    return f"{run}.{first}-{last}"


def last_place(id_: str, run: str) -> int | None:
    owner, _, places = id_.rpartition(".")
    last = places.rpartition("-")[2]
    return int(last) if owner == run and last.isdigit() and last.isascii() else None


def owner(items: Iterable[Item]) -> str:
    """The run, or whoever it was, that spoke last in a chat."""
    users = [item for item in items if item.type == "user"]
    return (max(users, key=lambda item: item.no).id or "").rpartition(".")[0] if users else ""
