"""From bytes to a call of an action. What is wrong is found in the order that the contract's page tells."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.types import Scope

from parley.core.access import Principal
from parley.core.actions import ACTIONS, BY_NAME, MODES, Action
from parley.core.params import Params
from parley.engine.documents import Asking
from parley.errors import InvalidJson, MediaTypeNotSupported, ParamInvalid, UnknownAction, UnknownMode
from parley.faces.http import check_text, header, is_json
from parley.faces.sentences import flaw_of

T = TypeVar("T")


class _Head(Struct):
    mode: Any = None
    action: Any = None


_head = msgspec.json.Decoder(_Head).decode
_PARAMS: dict[tuple[str, str], Callable[[bytes], Params]] = {
    (action.mode, action.name): msgspec.json.Decoder(action.params).decode for action in ACTIONS
}
_NOT_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Call(Struct, frozen=True):
    """An action as somebody asks for it."""

    principal: Principal
    conversation: str
    action: Action
    params: Params
    key: str | None = None

    @property
    def asking(self) -> Asking:
        """A key stands for everything that is asked, but not for what the client says about itself."""
        body = msgspec.json.encode(replace(self.params, metadata=None)) if self.key is not None else b""
        action = self.action
        return Asking(
            self.principal, self.conversation, self.params.agent_slug, action.mode, action.name, self.key, body
        )  # fmt: skip


def check_media(scope: Scope, body: bytes) -> None:
    if not is_json(scope):
        raise MediaTypeNotSupported("The request must be application/json.")
    check_text(body)


def action_of(scope: Scope, body: bytes, offered: Callable[[Action], bool]) -> Action:
    """Which action a body asks for."""
    check_media(scope, body)
    try:
        head = _head(body)
    except _NOT_JSON:
        raise InvalidJson("The request must be a JSON object.") from None
    if not isinstance(head.mode, str) or head.mode not in MODES:
        raise UnknownMode(f"There is no such mode; there are {', '.join(MODES)}.", supportedModes=MODES)
    action = BY_NAME.get((head.mode, head.action)) if isinstance(head.action, str) else None
    if action is None or not offered(action):
        known = [one.name for one in ACTIONS if one.mode == head.mode and offered(one)]
        listed = f"it has {', '.join(known)}" if known else "none of its actions is offered here"
        raise UnknownAction(f"The mode {head.mode} has no such action; {listed}.", supportedActions=known)
    return action


def params_of(action: Action, body: bytes) -> Params:
    """Its parameters, each of the type that it must have."""
    params = decoded(_PARAMS[action.mode, action.name], body)
    params.check()
    return params


def decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        place, sentence = flaw_of(str(error))
        raise ParamInvalid(f"{place or 'request'} {sentence}", field=place) from None
    except _NOT_JSON:
        raise InvalidJson("The request must be a JSON object.") from None


def key_of(scope: Scope) -> str | None:
    """`Idempotency-Key`, if there is one."""
    key = header(scope, b"idempotency-key")
    if key is not None and not (1 <= len(key) <= 255 and key.isprintable()):
        raise ParamInvalid("An idempotency key has 1 to 255 printable characters.", field="Idempotency-Key")
    return key


def wants_async(scope: Scope) -> bool:
    """`Prefer: respond-async` (RFC 7240)."""
    prefer = header(scope, b"prefer")
    if prefer is None:
        return False
    wishes = (wish.partition(";")[0].strip().lower() for wish in prefer.split(","))
    return "respond-async" in wishes
