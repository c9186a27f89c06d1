"""Rounds in which a model wants tools called: what is marked in the log, so that a turn that is taken up again, or one
that brings a person's answer, goes on where the last one was."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from parley.core.approvals import approval_digest, masked, needs_approval
from parley.core.artifacts import Part, Parts, text_part
from parley.core.canonical import Fields, Json
from parley.core.functions import Function, Returned, Wanted
from parley.core.mcp import Offer, functions
from parley.core.sanitising import sanitised
from parley.engine.ports import Speech
from parley.engine.toolwords import Execution
from parley.engine.turns import Turn

MAX_TOLD = 100_000
"""How much of a tool's output a model is given."""
MAX_ASKED = 2_000
_YES = frozenset(("yes", "y", "ok", "okay", "approve", "approved", "allow", "go", "go ahead", "do it", "sure"))


class Call(Struct, frozen=True, array_like=True):
    """One call of a round, as the log keeps it."""

    id: str
    function: str
    tool: str
    """`server/tool`; empty when there is none of that name."""
    input: dict[str, Any] | None
    exact: bool
    """Whether the input is all there: secrets are not kept."""
    digest: str = ""
    """Identifies the exact input, which a person's approval is good for."""
    masked: tuple[str, ...] = ()
    """Where the input is not shown as it is."""


class Round(Struct, frozen=True):
    """What a model said and wanted at once. `asks`: a person has to agree first."""

    turn: int
    number: int
    text: str
    calls: tuple[Call, ...]
    asks: bool = False

    def key(self, place: int) -> str:
        """The name of a call: the same whenever it is come back to."""
        return f"{self.turn}.{self.number}.{place}"

    def speech(self) -> Speech:
        calls = tuple(Wanted(call.id, call.function, call.input) for call in self.calls)
        return Speech("agent", (text_part(self.text),) if self.text else (), calls=calls)


class Toolset:
    """The tools of a turn, by the names that the model knows."""

    def __init__(self, offers: Sequence[Offer], approve: Sequence[str], salt: str = "") -> None:
        """`salt` is for digests of inputs that hold secrets."""
        self._offers = functions(offers)
        self._approve = approve
        self._salt = salt

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(
            Function(name, one.description, msgspec.Raw(msgspec.json.encode(one.schema)))
            for name, one in self._offers.items()
        )

    def round(self, turn: int, number: int, text: str, wanted: Sequence[Wanted]) -> Round:
        calls = tuple(self._call(one) for one in wanted)
        return Round(turn, number, text, calls, any(self._needs_approval(call) for call in calls))

    def _call(self, wanted: Wanted) -> Call:
        offer = self._offers.get(wanted.name)
        kept = sanitised(wanted.input, personal=False)
        shown = kept if isinstance(kept, dict) else None
        tool, exact = offer.full if offer else "", kept == wanted.input
        digest = approval_digest(tool, wanted.input, "" if exact else self._salt)
        return Call(wanted.id, wanted.name, tool, shown, exact, digest, tuple(masked(wanted.input, kept)))

    def _needs_approval(self, call: Call) -> bool:
        return bool(call.tool) and needs_approval(self._approve, call.tool)


class Begun(Struct, frozen=True):
    """What a turn goes on with. `earlier`: how many turns before it belong to the same matter, each ended by asking
    for approval; `rounds`: what was said and wanted in them and, if it was broken off, in this one."""

    earlier: int
    rounds: tuple[Round, ...]


def begun(turn: Turn) -> Begun:
    marked = [_decode(mark) for mark in turn.marks]
    by_turn = {number: [one for one in marked if one.turn == number] for number in {one.turn for one in marked}}
    earlier = 0
    while (before := by_turn.get(turn.number - earlier - 1)) and before[-1].asks and (earlier or turn.answers):
        earlier += 1
    return Begun(earlier, tuple(one for one in marked if turn.number - earlier <= one.turn <= turn.number))


def mark(one: Round) -> str:
    return msgspec.json.encode(one).decode()


def question(one: Round) -> Parts:
    """What would be called, in words and as data: all of it but secrets, and which values these are."""
    calls = [call for call in one.calls if call.tool]
    wanted: list[Json] = [_asked(call) for call in calls]
    lines = " and ".join(f"{call.tool} {_short(call.input)}{_hidden(call)}" for call in calls)
    asked = f"May I call {lines}? Answer yes, or say why not."
    return (text_part(asked), Part(data=msgspec.Raw(msgspec.json.encode({"approval": wanted}))))


def agreed(text: str) -> bool:
    """Only what is clearly a yes is one."""
    return " ".join(text.casefold().strip(" \t\n.!").split()) in _YES


def declined(call: Call, words: str) -> Returned:
    return Returned(call.id, f"A person declined this call, and said: {words[:MAX_ASKED]}", failed=True)


def told(call: Call, execution: Execution) -> Returned:
    if execution.status == "failed":
        return Returned(call.id, f"{execution.code}: {execution.message}", failed=True)
    output = execution.output
    text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
    if len(text) > MAX_TOLD:
        text = f"{text[:MAX_TOLD]}\n[cut here: {len(text):,} characters]"
    return Returned(call.id, text)


def _asked(call: Call) -> Json:
    masked_at: Fields = {"masked": list(call.masked)} if call.masked else {}
    return {"tool": call.tool, "input": call.input, **masked_at, "digest": call.digest}


def _hidden(call: Call) -> str:
    """Says which values are shown masked, and go to the tool as they are."""
    if not call.masked:
        return ""
    places = ", ".join(call.masked)
    return f" (masked here, but not in the call: {places if len(places) <= MAX_ASKED else 'several values'})"


def _short(given: Fields | None) -> str:
    text = msgspec.json.encode(given or {}).decode()
    if len(text) <= MAX_ASKED:
        return text
    return f"{text[:MAX_ASKED]}… (cut here: {len(text):,} characters; the data of this message has them all)"


_decode = msgspec.json.Decoder(Round).decode
