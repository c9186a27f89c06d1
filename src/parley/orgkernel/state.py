"""Where a task stands in its workflow: small enough to be noted at every step, so that a restart goes on from there."""

from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.orgkernel.definitions import Level

MAX_NOTE = 3800
MAX_WORDS = 300
MAX_GUIDANCE = 600
MAX_KEPT = 6
_KEPT_PATHS = 40


class State(Struct, frozen=True, omit_defaults=True):
    domain: str
    role: str = ""
    plan: str = ""
    node: str = ""
    attempts: dict[str, int] = {}
    """How often each node was tried since the client last spoke."""
    done: tuple[str, ...] = ()
    """The nodes that were verified, each once."""
    passed_over: tuple[str, ...] = ()
    """Those among them of which nothing was done, for lack of a model."""
    level: Level = "primary"
    failures: int = 0
    failures_total: int = 0
    turns: int = 0
    turns_since_progress: int = 0
    failed: tuple[str, ...] = ()
    said: dict[str, str] = {}
    """What the latest nodes brought to light, shortened."""
    files: tuple[str, ...] = ()
    guidance: tuple[str, ...] = ()
    back: str = ""
    """The node to go on with after an answer."""
    confirming: bool = False
    """Whether the client was asked to verify that node."""
    verdict: Literal["", "yes", "no"] = ""
    """What the client said to that."""
    started: int = 0
    salute: str = ""
    """The level and the state of the report that was made last, and the turn it was made in."""
    saluted: int = 0
    modelled: bool = False
    """Whether a model has written into the folder of the task."""
    proposed: str = ""
    """The digest of what the client was asked to approve."""
    approved: str = ""
    declined: bool = False
    """Whether the client did not approve."""

    def noted(self, node: str, words: str) -> "State":
        said = {name: one for name, one in self.said.items() if name != node}
        kept = dict([*said.items(), (node, shortened(words))][-MAX_KEPT:])
        return replace(self, said=kept)


def shortened(words: str, most: int = MAX_WORDS) -> str:
    plain = " ".join(words[: most * 4].split())
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def kept_guidance(text: str) -> str:
    """As much of a message of the client as the state keeps."""
    return shortened(text, MAX_GUIDANCE)


def packed(state: State) -> str:
    """As a note. What does not fit goes: first what was said, then the oldest failures and files."""
    state = replace(state, files=state.files[:_KEPT_PATHS])
    text = _written(state)
    while len(text) > MAX_NOTE:
        smaller = _smaller(state)
        if smaller == state:
            return _written(State(state.domain, state.role, state.plan, state.node, started=state.started))
        state, text = smaller, _written(smaller)
    return text


def unpacked(note: str) -> State | None:
    """None for what is no note of ours."""
    try:
        return msgspec.json.decode(note, type=State)
    except msgspec.MsgspecError:
        return None


def _written(state: State) -> str:
    return msgspec.json.encode(state).decode()


def _smaller(state: State) -> State:
    if state.said:
        return replace(state, said=dict(list(state.said.items())[1:]))
    if len(state.failed) > 1:
        return replace(state, failed=state.failed[1:])
    if len(state.guidance) > 1:
        return replace(state, guidance=state.guidance[1:])
    return replace(state, files=state.files[: len(state.files) // 2])
