"""A version of A2A on a wire: the shape of what comes in, and how what is shown is written."""

from typing import Any, ClassVar, Literal, Protocol

import msgspec

from parley.engine.hooks import Hook
from parley.errors import Invalid
from parley.faces.a2a.protojson import camel
from parley.faces.a2a.words import Ask, HookRef, Page, Query, ReplyShown, Shown, TaskShown

Operation = Literal[
    "send", "stream", "get", "list", "cancel", "subscribe",
    "set_hook", "get_hook", "list_hooks", "delete_hook", "card",
]  # fmt: skip
STREAMING: frozenset[Operation] = frozenset(("stream", "subscribe"))


class Dialect(Protocol):
    """Params are whatever struct `params` names for an operation; results are structs ready to be encoded."""

    version: ClassVar[str]
    params: ClassVar[dict[Operation, type[Any]]]

    def ask(self, params: Any) -> Ask: ...

    def query(self, params: Any) -> Query: ...

    def hook(self, params: Any) -> Hook: ...

    def hook_ref(self, params: Any) -> HookRef: ...

    def sent(self, shown: TaskShown | ReplyShown) -> object: ...

    def task(self, shown: TaskShown) -> object: ...

    def frame(self, shown: Shown, last: bool) -> object:
        """What a stream shows, or None; `last` when nothing follows it."""
        ...

    def page(self, page: Page) -> object: ...

    def hook_out(self, hook: Hook) -> object: ...

    def hooks_out(self, hooks: list[Hook], next_token: str) -> object: ...


encode = msgspec.json.Encoder().encode


def read(kind: type[Any], given: bytes | msgspec.Raw) -> Any:
    """Params from JSON, or the reason why not."""
    try:
        return _decoder(kind).decode(camel(kind, given))
    except msgspec.ValidationError as error:
        raise Invalid(f"Invalid params: {error}", field=_field(error)) from None
    except msgspec.DecodeError as error:
        raise Invalid(f"Invalid params: {error}", field="params") from None
    except RecursionError:
        raise Invalid("Invalid params: nested too deep.", field="params") from None


def convert(kind: type[Any], given: dict[str, object]) -> Any:
    """Params from a path and a query, where everything is text."""
    try:
        return msgspec.convert({_camel(name): value for name, value in given.items()}, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"Invalid parameters: {error}", field=_field(error)) from None


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    return decoder


def _field(error: msgspec.ValidationError) -> str:
    """`$.message.parts[0]` at the end of the parser's words, as the caller would write it."""
    _, found, path = str(error).rpartition("`$")
    return (found and path.rstrip("`").lstrip(".")) or "params"
