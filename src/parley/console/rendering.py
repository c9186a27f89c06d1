"""Templates, and how other people's words are put into them without becoming anything else."""

import hashlib
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import Any, cast
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from parley.clock import iso
from parley.console.replies import PREFIX, path_of
from parley.core.nesting import is_deeper
from parley.exports.html import rendered, unformatted
from parley.exports.parsing import Budget

MAX_MARKDOWN = 100_000
"""Longer texts are shown as they are: nobody reads them for their headings."""

MAX_PAGE_CPU_S = 2.0
"""Processor time in which the Markdown of one page must be formatted."""
MAX_PRETTY = 64 * 1024
"""Bytes of JSON that are shown."""
MAX_INDENTED = 20
"""Levels of JSON that are indented."""

_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)

_CONTROLS = {
    **{code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
_BIDI = dict.fromkeys((0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)))


def plain(text: object) -> str:
    """Text with its control characters made visible. Directions are kept: they act within their element."""
    return str(text).replace("\r\n", "\n").translate(_CONTROLS)


def label(text: object) -> str:
    """Text for a place where no element keeps directions in: a title, an attribute."""
    return " ".join(str(text).translate(_BIDI).translate(_CONTROLS).split())


def markdown(text: str) -> Markup:
    """Formatted within the time of its page; as it was written where it is long, or the time is used up."""
    shown = plain(text)
    if len(shown) > MAX_MARKDOWN:
        return Markup(unformatted(shown))
    return Markup(rendered(shown, breaks=True, budget=_budget.get()))


def pretty(raw: msgspec.Raw | bytes | str) -> str:
    """JSON as people read it; on one line where indentation would be most of it, and cut where it is long."""
    body = raw.encode() if isinstance(raw, str) else bytes(raw)
    if len(body) > MAX_PRETTY:
        return plain(f"{body[:MAX_PRETTY].decode(errors='replace')}…")
    if is_deeper(body, MAX_INDENTED):
        return plain(body.decode(errors="replace"))
    try:
        return plain(msgspec.json.format(body, indent=2).decode())
    except msgspec.MsgspecError:
        return plain(body.decode(errors="replace"))


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%d %b %Y, %H:%M UTC")


def size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


@lru_cache(maxsize=1)
def assets() -> dict[str, bytes]:
    """Every file of `static/`, by name."""
    folder = files("parley.console") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


@lru_cache(maxsize=1)
def edition() -> str:
    """What the addresses of assets begin with: other contents, other addresses, so that browsers may keep them."""
    digest = hashlib.sha256()
    for name, content in sorted(assets().items()):
        digest.update(b"%b\0%b\0" % (name.encode(), content))
    return digest.hexdigest()[:12]


def static(name: str) -> str:
    if name not in assets():
        raise KeyError(name)
    return f"{PREFIX}/static/{edition()}/{name}"


def to(path: str, **query: str | int | None) -> str:
    """The address of a page."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{PREFIX}{path}" + (f"?{urlencode(given)}" if given else "")


def run_path(run_id: str, *more: str) -> str:
    return path_of("runs", run_id, *more)


@lru_cache(maxsize=1)
def templates() -> Environment:
    made = Environment(
        loader=PackageLoader("parley.console"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    for filter_ in (plain, label, markdown, pretty, cut, iso, moment, size):
        cast(dict[str, object], made.filters)[filter_.__name__] = filter_
    for function in (to, static, run_path, path_of):
        cast(dict[str, object], made.globals)[function.__name__] = function
    return made


def render(name: str, context: dict[str, Any]) -> str:
    """Fill a template. What others wrote is in it, so this is for the console's worker threads."""
    given = _budget.set(Budget(MAX_PAGE_CPU_S))
    try:
        return templates().get_template(name).render(context)
    finally:
        _budget.reset(given)
