"""Rounds of tool calls that a model requests. Each round is marked in the log, so that a resumed turn, or the turn that
brings a person's approval, continues where the previous turn stopped."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.errors import ApprovalRequired, Invalid, KeyReused, NotFound
from parley.execution.rules import Status, Text
from parley.execution.turn import ToolCallRecord, Turn
from parley.json_values import Fields, Json
from parley.models.calls import usage_of
from parley.models.llm import Answered, Delta, Finish, Speech, TokenUsage
from parley.runs.rules.content import Part, Parts, text_of, text_part
from parley.runs.rules.usage import Usage
from parley.tools.rules.mcp import Function, Returned, ToolOffer, WantedCall, functions
from parley.tools.rules.policy import Approval, approval_digest, masked, needs_approval
from parley.tools.rules.redaction import sanitised

MAX_TOLD = 100_000
"""Maximum number of characters of a tool's output that the model is given."""
MAX_ASKED = 2_000
_YES = frozenset(("yes", "y", "ok", "okay", "approve", "approved", "allow", "go", "go ahead", "do it", "sure"))


class ModelToolCall(Struct, frozen=True, array_like=True):
    """One call of a round, as stored in the log."""

    id: str
    function: str
    tool: str
    """`server/tool`; empty when no tool has that name."""
    input: dict[str, Any] | None
    exact: bool
    """True if `input` is complete; False if secrets were removed from it, because secrets are not stored."""
    digest: str = ""
    """Identifies the exact input. A person's approval is valid only for this input."""
    masked: tuple[str, ...] = ()
    """Paths of the values that are masked in `input`."""


class ToolRound(Struct, frozen=True):
    """One answer of a model with its text and the tool calls it requests. `asks`: a person must approve them first."""

    turn: int
    number: int
    text: str
    calls: tuple[ModelToolCall, ...]
    asks: bool = False

    def key(self, place: int) -> str:
        """Return the idempotency key of a call. It is the same each time the turn is resumed."""
        return f"{self.turn}.{self.number}.{place}"

    def speech(self) -> Speech:
        calls = tuple(WantedCall(call.id, call.function, call.input) for call in self.calls)
        return Speech("agent", (text_part(self.text),) if self.text else (), calls=calls)


class Toolset:
    """The tools of a turn, by the names that the model uses."""

    def __init__(self, offers: Sequence[ToolOffer], approve: Sequence[str], salt: str = "") -> None:
        """`salt` is used in the digests of inputs that contain secrets."""
        self._offers = functions(offers)
        self._approve = approve
        self._salt = salt

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(
            Function(name, one.description, msgspec.Raw(msgspec.json.encode(one.schema)))
            for name, one in self._offers.items()
        )

    def round(self, turn: int, number: int, text: str, wanted: Sequence[WantedCall]) -> ToolRound:
        calls = tuple(self._call(one) for one in wanted)
        return ToolRound(turn, number, text, calls, any(self._needs_approval(call) for call in calls))

    def _call(self, wanted: WantedCall) -> ModelToolCall:
        offer = self._offers.get(wanted.name)
        kept = sanitised(wanted.input, personal=False)
        shown = kept if isinstance(kept, dict) else None
        tool, exact = offer.full if offer else "", kept == wanted.input
        digest = approval_digest(tool, wanted.input, "" if exact else self._salt)
        return ModelToolCall(wanted.id, wanted.name, tool, shown, exact, digest, tuple(masked(wanted.input, kept)))

    def _needs_approval(self, call: ModelToolCall) -> bool:
        return bool(call.tool) and needs_approval(self._approve, call.tool)


class Begun(Struct, frozen=True):
    """The state that a turn continues from. `earlier`: number of turns before it that belong to the same work; each of
    them ended with a request for approval. `rounds`: the rounds of those turns and, if this turn was interrupted, of
    this turn too."""

    earlier: int
    rounds: tuple[ToolRound, ...]


def begun(turn: Turn) -> Begun:
    marked = [_decode(mark) for mark in turn.marks]
    by_turn = {number: [one for one in marked if one.turn == number] for number in {one.turn for one in marked}}
    earlier = 0
    while (before := by_turn.get(turn.number - earlier - 1)) and before[-1].asks and (earlier or turn.answers):
        earlier += 1
    return Begun(earlier, tuple(one for one in marked if turn.number - earlier <= one.turn <= turn.number))


# Why: docs/decisions/models-and-llm.md#record-a-models-tool-calls-before-making-them
def mark(one: ToolRound) -> str:
    return msgspec.json.encode(one).decode()


def question(one: ToolRound) -> Parts:
    """Return the question that asks a person to approve the calls, as text and as data. Secrets are masked, and the
    question lists which values are masked."""
    calls = [call for call in one.calls if call.tool]
    wanted: list[Json] = [_asked(call) for call in calls]
    lines = " and ".join(f"{call.tool} {_short(call.input)}{_hidden(call)}" for call in calls)
    asked = f"May I call {lines}? Answer yes, or say why not."
    return (text_part(asked), Part(data=msgspec.Raw(msgspec.json.encode({"approval": wanted}))))


def agreed(text: str) -> bool:
    """Tell whether the text is a clear yes. Anything else counts as no."""
    return " ".join(text.casefold().strip(" \t\n.!").split()) in _YES


def declined(call: ModelToolCall, words: str) -> Returned:
    return Returned(call.id, f"A person declined this call, and said: {words[:MAX_ASKED]}", failed=True)


def told(call: ModelToolCall, execution: ToolCallRecord) -> Returned:
    if execution.status == "failed":
        return Returned(call.id, f"{execution.code}: {execution.message}", failed=True)
    output = execution.output
    text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
    if len(text) > MAX_TOLD:
        text = f"{text[:MAX_TOLD]}\n[cut here: {len(text):,} characters]"
    return Returned(call.id, text)


def _asked(call: ModelToolCall) -> Json:
    masked_at: Fields = {"masked": list(call.masked)} if call.masked else {}
    return {"tool": call.tool, "input": call.input, **masked_at, "digest": call.digest}


def _hidden(call: ModelToolCall) -> str:
    """Return a remark that lists the values which are masked in the question but not in the call."""
    if not call.masked:
        return ""
    places = ", ".join(call.masked)
    return f" (masked here, but not in the call: {places if len(places) <= MAX_ASKED else 'several values'})"


def _short(given: Fields | None) -> str:
    text = msgspec.json.encode(given or {}).decode()
    if len(text) <= MAX_ASKED:
        return text
    return f"{text[:MAX_ASKED]}… (cut here: {len(text):,} characters; the data of this message has them all)"


_decode = msgspec.json.Decoder(ToolRound).decode


# Execution of the calls of a round: each call runs once, even when the turn is resumed.

MAX_HELD = 1_000
PROGRESS_S = 1.0
"""Shortest time between two progress updates of a tool."""
_LOST = "A restart interrupted this call before it ran; make it again if it is still needed."


class HeldCalls:
    """Inputs that contain secrets. They are kept only in memory, and the oldest are dropped when there are too many."""

    def __init__(self) -> None:
        self.salt = secrets.token_hex(16)
        self._inputs: dict[tuple[str, str], Fields] = {}

    def keep(self, turn: Turn, one: ToolRound, wanted: Sequence[WantedCall]) -> None:
        for place, (call, given) in enumerate(zip(one.calls, wanted, strict=True)):
            if not call.exact and given.input is not None:
                self._inputs[turn.run_id, one.key(place)] = given.input
        while len(self._inputs) > MAX_HELD:
            del self._inputs[next(iter(self._inputs))]

    def input(self, turn: Turn, one: ToolRound, place: int) -> Fields | None:
        call = one.calls[place]
        return call.input if call.exact else self._inputs.get((turn.run_id, one.key(place)))

    def approval(self, call: ModelToolCall) -> Approval:
        return Approval(call.digest, "" if call.exact else self.salt)


class ToolUse:
    def __init__(self, turn: Turn, held: HeldCalls) -> None:
        self._turn = turn
        self._held = held

    async def results(
        self, one: ToolRound, *, again: bool = False
    ) -> AsyncGenerator[Status | tuple[Returned, ...], None]:
        """Yield the progress of the tools, then the results of all of them. `again`: the calls may have run before."""
        said: asyncio.Queue[str] = asyncio.Queue()
        calls = [self._result(one, place, said, again=again) for place in range(len(one.calls))]
        work = asyncio.gather(*calls)
        hearing = asyncio.ensure_future(said.get())
        try:
            while not work.done():
                await asyncio.wait((work, hearing), return_when=asyncio.FIRST_COMPLETED)
                if hearing.done():
                    yield Status(hearing.result())
                    hearing = asyncio.ensure_future(said.get())
            yield tuple(work.result())
        finally:
            hearing.cancel()
            work.cancel()

    async def _result(self, one: ToolRound, place: int, said: "asyncio.Queue[str]", *, again: bool) -> Returned:
        call, key = one.calls[place], one.key(place)
        if not call.tool:
            return Returned(call.id, f"There is no tool {call.function}.", failed=True)
        if again and (before := await self._turn.used(key)) is not None:
            return told(call, before)
        given = self._held.input(self._turn, one, place)
        if given is None:
            return Returned(call.id, _LOST if not call.exact else "The input is not a JSON object.", failed=True)
        # A round that asks gets to this point only after a person has approved it.
        approved = self._held.approval(call) if one.asks else None
        try:
            progress = _Progress(call, said)
            return told(call, await self._turn.use(call.tool, given, key=key, progressed=progress, approved=approved))
        except (ApprovalRequired, NotFound, Invalid, KeyReused) as error:
            return Returned(call.id, error.message, failed=True)


class _Progress:
    """Forwards a tool's progress messages, at most one per PROGRESS_S."""

    def __init__(self, call: ModelToolCall, said: "asyncio.Queue[str]") -> None:
        self._tool = call.tool
        self._said = said
        self._last = 0.0

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        if time.monotonic() - self._last >= PROGRESS_S:
            self._last = time.monotonic()
            how = f"{progress:g} of {total:g}" if total is not None else f"{progress:g}"
            self._said.put_nowait(f"{self._tool}: {(message or how)[:200]}")


# The answer of a model so far, over all rounds of a turn.

BETWEEN = "\n\n"
"""Separates the text before a tool call from the text after it."""


class ModelAnswer:
    def __init__(self, model: str) -> None:
        self.said: list[str] = []
        self.reason = "interrupted"
        self.wanted: list[WantedCall] = []
        self._round: list[str] = []
        self._usage = TokenUsage(model)
        self._before: list[TokenUsage] = []

    @property
    def about(self) -> dict[str, object]:
        """Metadata for the log: the model, its token usage as far as the vendor reported it, and the finish reason."""
        return {**self._maker, "finish": self.reason}

    @property
    def model(self) -> str:
        return self._usage.model

    @property
    def tokens(self) -> int | None:
        """Input and output tokens of all rounds, as far as the vendor reported them."""
        asked = [*self._before, self._usage]
        return _sum(count for one in asked for count in (one.input_tokens, one.output_tokens))

    @property
    def text_of_round(self) -> str:
        return "".join(self._round)

    @property
    def _maker(self) -> dict[str, object]:
        asked = [*self._before, self._usage]
        counted = {
            "inputTokens": _sum(one.input_tokens for one in asked),
            "outputTokens": _sum(one.output_tokens for one in asked),
        }
        maker: dict[str, object] = {"model": self._usage.model, "usage": counted}
        if self._usage.temperature is not None:
            maker["temperature"] = self._usage.temperature
        return {**maker, "estimated": True} if any(one.estimated for one in asked) else maker

    def again(self, texts: Iterable[str]) -> Iterator[Text]:
        """Yield the text of the earlier rounds of a resumed turn: the answer is shown from its beginning."""
        if said := BETWEEN.join(text for text in texts if text):
            self.said.append(said)
            yield Text(said, self._maker)

    def begin_round(self) -> None:
        """Start the next request to the model."""
        if self._usage.input_tokens is not None or self._usage.output_tokens is not None:
            self._before.append(self._usage)
            self._usage = TokenUsage(self._usage.model, temperature=self._usage.temperature)
        self._round, self.wanted = [], []

    def heard(self, output: Answered) -> Iterator[Text]:
        match output:
            case Delta(text):
                between = BETWEEN if self.said and not self._round else ""
                # The first chunk names the model, so that an answer that is canceled names it too.
                yield Text(between + text, None if self.said else self._maker)
                self.said.append(between + text)
                self._round.append(text)
            case WantedCall():
                self.wanted.append(output)
            case TokenUsage():
                self._usage = output
            case Finish(reason):
                self.reason = reason

    def estimate(self, messages: Iterable[Speech], instructions: str) -> Usage | None:
        """Estimate the tokens of a round for which the vendor reported none: about four bytes per token. Return the
        estimate."""
        if self._usage.input_tokens is None and self._usage.output_tokens is None:
            read = "".join((instructions, *(text_of(one.parts) for one in messages)))
            counted = (_tokens(read), _tokens(self.text_of_round))
            self._usage = replace(self._usage, input_tokens=counted[0], output_tokens=counted[1], estimated=True)
            return usage_of(self._usage)
        return None


def _tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // 4)


def _sum(counts: Iterable[int | None]) -> int | None:
    told = [one for one in counts if one is not None]
    return sum(told) if told else None
