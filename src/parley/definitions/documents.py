"""What a file says, and on which line it says it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from parley.errors import ConfigurationError

MAX_BYTES = 256 * 1024
MAX_NODES = 10_000
MAX_DEPTH = 32

Route = tuple[str | int, ...]
"""The way to a value: keys of mappings and places in lists."""


class Document(Struct, frozen=True):
    """One definition. Lines are kept beside the values, so that a fault found later can still be shown in its place."""

    file: str
    value: Any
    lines: dict[Route, int]
    texts: dict[Route, str]
    """Numbers and truth values as they were written, for fields that want text: `version: 1.0`."""

    def line(self, route: Route) -> int:
        """Where a value is, or the nearest thing around it that is there."""
        while route and route not in self.lines:
            route = route[:-1]
        return self.lines.get(route, 1)

    def fault(
        self, route: Route, message: str, kind: type[ConfigurationError] = ConfigurationError
    ) -> ConfigurationError:
        return fault(self.file, message, self.line(route), shown(route), kind)


def fault(
    file: str,
    message: str,
    line: int | None = None,
    field: str | None = None,
    kind: type[ConfigurationError] = ConfigurationError,
) -> ConfigurationError:
    where = file if line is None else f"{file}:{line}"
    what = f"{field}: {message}" if field else message
    return kind(f"{where}: {what}", file=file, line=line, field=field)


def together(faults: Sequence[ConfigurationError]) -> ConfigurationError:
    """All of them as one, a line each; details are those of the first. It is of their kind if they are of one."""
    message = "\n".join(one.message for one in faults)
    kinds = {type(one) for one in faults}
    kind = kinds.pop() if len(kinds) == 1 else ConfigurationError
    return kind(message, **faults[0].details, faults=[one.details for one in faults])


def shown(route: Route) -> str:
    """A route as people write it: `skills[0].name`."""
    text = ""
    for step in route:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def read_text(path: Path) -> str:
    """The text of a file of reasonable size."""
    file = str(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise fault(file, f"cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise fault(file, f"is larger than {MAX_BYTES // 1024} kB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise fault(file, "is not text in UTF-8", line) from None
