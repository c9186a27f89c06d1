"""How a turn of ours ends with the word of an agent that speaks A2A, be it elsewhere or an executor in this process."""

import re

from msgspec import UNSET, Raw, Struct, UnsetType

from parley.core.artifacts import names_in, text_of
from parley.core.events import Failed, Rejected
from parley.core.runs import State
from parley.core.turns import Done, NeedAuth, NeedInput, Reply
from parley.drivers.remote.words import Words

Ends = Done | NeedInput | NeedAuth | Reply | Failed | Rejected
ENDS = (Done, NeedInput, NeedAuth, Reply, Failed, Rejected)
MAX_WORDS = 2000
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Speaker(Struct, frozen=True):
    """Who it is: as codes begin, as sentences call it, and what is said of a cancel that nobody here asked for."""

    prefix: str
    name: str
    canceled: str


REMOTE = Speaker("remote", "The remote agent", "The task was canceled at the remote agent.")
EXECUTOR = Speaker("agent", "The agent", "The agent canceled the task by itself.")


def ending(
    state: State, said: Words | None, who: Speaker = REMOTE, metadata: Raw | UnsetType = UNSET
) -> Ends | None:  # fmt: skip
    """None while it goes on. `metadata` is the task's."""
    about, task = members(said.metadata) if said else None, members(metadata)
    parts = said.parts if said else ()
    words = text_of(parts)[:MAX_WORDS]
    code = said.code if said and said.code and _CODE.fullmatch(said.code) else None
    match state:
        case State.COMPLETED:
            return Done(parts, about, task)
        case State.INPUT_REQUIRED:
            return NeedInput(parts or f"{who.name} asks for more input.", about, task)
        case State.AUTH_REQUIRED:
            return NeedAuth(parts or f"{who.name} asks for authorization.", about, task)
        case State.FAILED:
            reason = words or f"{who.name} failed, and did not say why."
            return Failed(code or f"{who.prefix}_failed", reason, metadata)
        case State.REJECTED:
            return Rejected(code or f"{who.prefix}_rejected", words or f"{who.name} rejected the task.")
        case State.CANCELED:
            return Failed(f"{who.prefix}_canceled", words or who.canceled, metadata)
        case _:
            return None


def members(metadata: Raw | UnsetType) -> dict[str, Raw] | None:
    return None if metadata is UNSET else names_in(metadata)
