"""The part that is common to all adapters of agent frameworks.

A framework runs an agent in its own loop of model and tool calls. Each of these calls is a durable step. A turn that is
resumed after a crash, or that brings the answer to a question, starts the loop again from the message that the user
sent first, and gets the recorded results until it reaches new work.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Unpack, cast

import msgspec
from msgspec import UNSET, Struct

from parley.drivers.function import More
from parley.errors import AgentError, ContentNotSupported, ModelError
from parley.execution.rules import NeedInput, Output, Status, Text
from parley.execution.turn import Turn
from parley.json_values import Fields, Json, fields_of
from parley.models.llm import READS
from parley.runs.rules.agents import Agent, Limits, Rescue, Skill, plain_name, plain_skill
from parley.runs.rules.content import Message, Part, Parts
from parley.runs.rules.usage import MAX_TOKENS, Usage
from parley.tools.rules.redaction import sanitised

HISTORY = 20
"""Number of earlier exchanges of the conversation that a model reads."""
BETWEEN = "\n\n"
"""Separates the text before a tool call from the text after it."""
APPROVE, DECLINE = "Approve", "Decline"
MAX_SHOWN = 2_000


def framework_agent(
    slug: str,
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "1.0.0",
    skills: Sequence[Skill] = (),
    limits: Limits | None = None,
    rescue: Rescue = "restart",
    **more: Unpack[More],
) -> Agent:
    """Return the description of an agent that a framework runs. It reads text, pictures and PDF files."""
    about = description or f"The agent {slug}."
    more.setdefault("input_modes", READS)
    return Agent(
        slug,
        name or plain_name(slug),
        about,
        version,
        tuple(skills) or (plain_skill(slug, name or slug, about),),
        limits=limits or Limits(),
        rescue=rescue,
        **more,
    )


# Questions: they end the turn, and the next turn has the answer.


class CallerQuestion(Struct, frozen=True):
    """A question to the caller. `keys` identify what it asks: the answer to one key is the whole answer, the answer to
    several is an object with these members."""

    keys: tuple[str, ...]
    need: NeedInput


class Asked(BaseException):
    """Ends the framework's loop with a question. Not an Exception, so that `except Exception` in a tool does not catch
    it."""

    def __init__(self, question: CallerQuestion) -> None:
        super().__init__(question.keys)
        self.question = question


class PendingCall(Struct, frozen=True):
    """A tool call that waits for a person's approval."""

    id: str
    tool: str
    input: Json
    round: int = 0
    """Number of model calls before this call: some models give the same id to calls of different answers."""

    @property
    def key(self) -> str:
        return f"approve.{self.round}.{self.id}"

    @property
    def shown(self) -> str:
        text = msgspec.json.encode(sanitised(self.input, personal=False)).decode()
        return f"{self.tool} {text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + '…'}"


def approval_of(calls: Sequence[PendingCall]) -> CallerQuestion:
    """Return the question whether some calls may be made: two choices for one call, a form for several."""
    if len(calls) == 1:
        need = NeedInput(f"May I call {calls[0].shown}?", choices=(APPROVE, DECLINE))
        return CallerQuestion((calls[0].key,), need)
    fields: dict[str, object] = {call.key: {"type": "boolean", "title": call.shown} for call in calls}
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    lines = "\n".join(f"- {call.shown}" for call in calls)
    return CallerQuestion(tuple(fields), NeedInput(f"May I make these calls?\n{lines}", schema=schema))


class _Asking(Struct, frozen=True):
    """The record of a question: the first turn of its exchange, and the keys it asks."""

    since: int
    keys: tuple[str, ...]


class FrameworkTurn:
    """One turn of an agent that a framework runs."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self._since = turn.number
        """The turn that began with the user's message; the turns after it answered questions."""
        self._answers: dict[str, Json] = {}
        self._outputs: asyncio.Queue[Output | None] = asyncio.Queue(1)
        self._question: CallerQuestion | None = None
        self._said = False
        self._tools = 0
        self._idle = asyncio.Event()

    async def outputs(self, loop: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[Output, None]:
        """Run the framework's loop, and yield what it says."""
        await self._open()
        task = asyncio.create_task(self._looped(loop))
        try:
            while (output := await self._outputs.get()) is not None:
                yield output
                self._outputs.task_done()
            await self._ended(task)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._question is not None:
            yield self._question.need

    async def _looped(self, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        _CALL.set(_Call(self))
        try:
            await loop()
        except Exception as error:
            # The libraries of model vendors raise errors with the status of the response. Their text may contain keys.
            status = getattr(error, "status_code", None)
            if isinstance(status, int):
                raise ModelError(f"The model call failed with status {status}.") from error
            raise
        finally:
            await self._outputs.put(None)

    async def _ended(self, task: "asyncio.Task[None]") -> None:
        """Raise what the loop raised, unless it stopped to ask."""
        try:
            await task
        except (Asked, Exception, BaseExceptionGroup) as error:
            self._question = _question_in(error)
            if self._question is None:
                raise
            await self._recorded("question", self.turn.number, _Asking(self._since, self._question.keys))

    # Memory: what was said before, and the answers to questions.

    async def _open(self) -> None:
        """Find the first turn of this exchange, and the answers to the questions since."""
        if not self.turn.answers:
            return
        last = await self._asked_in(self.turn.number - 1)
        if last is None:
            return
        self._since = last.since
        for number in range(last.since, self.turn.number):
            asked = await self._asked_in(number)
            given = _answer(self.turn) if number == self.turn.number - 1 else None
            answer = await self._recorded("answer", number, given)
            keys = asked.keys if asked is not None else ()
            self._answers |= {key: answer if len(keys) == 1 else fields_of(answer).get(key) for key in keys}

    async def _asked_in(self, number: int) -> _Asking | None:
        found = await self._recorded("question", number, None)
        return msgspec.convert(found, _Asking) if found is not None else None

    async def _recorded(self, name: str, number: int, value: object) -> Json:
        """Return the recorded value; record this one if there is none."""

        async def given() -> object:
            return value

        return cast(Json, await self.turn.step(name, given, key=str(number), shown=False))

    async def keep(self, name: str, place: str, value: Json) -> None:
        """Record a value of this exchange."""

        async def given() -> Json:
            await self._outputs.join()
            return value

        await self.turn.step(name, given, key=f"{self._since}.{place}", shown=False)

    async def recorded(self, name: str, place: str) -> Json:
        """Return a value of this exchange; None if it is not recorded."""

        async def missing() -> Json:
            raise _Missing

        try:
            return await self.turn.step(name, missing, key=f"{self._since}.{place}", shown=False)
        except _Missing:
            return None

    async def conversation(self, history: int = HISTORY) -> tuple[list[tuple[list[Parts], str]], list[Parts]]:
        """Return the earlier exchanges, each with its messages and its answer, and the messages of this exchange."""
        earlier = self.turn.number - self._since
        recalled = await self.turn.recall(history + earlier)
        before, since = recalled[: len(recalled) - earlier], recalled[len(recalled) - earlier :]
        said = [(await self._loaded(one.asked), one.answer) for one in before if one.answer]
        new = await self._loaded(since[0].asked if since else self.turn.inputs)
        if not any(part.text is None or part.text.strip() for parts in new for part in parts):
            raise ContentNotSupported("The message is blank. Send some text or a file.")
        return said, new

    async def _loaded(self, messages: Sequence[Message]) -> list[Parts]:
        return [await self.turn.loaded(message.parts) for message in messages]

    # Durable calls.

    async def model(self, call: Callable[[], Awaitable[Json]]) -> tuple[Json, bool]:
        """Return the answer of a model. It is recorded before it is used. Also return whether its text must be streamed
        again, because this turn was interrupted after it."""
        number, called = _current().next_model(), False

        async def answered() -> Json:
            nonlocal called
            called = True
            return {"turn": self.turn.number, "answer": await call()}

        found = fields_of(await self._step("model", str(number), answered))
        return found["answer"], not called and found["turn"] == self.turn.number

    def call(self, id: str, tool: str, input: Json) -> PendingCall:
        """Return a tool call that the model has just requested."""
        return PendingCall(id, tool, input, _current().models)

    async def tool(self, call: PendingCall, work: Callable[[], Awaitable[Json]], *, settle: bool = False) -> Json:
        """Return the result of a tool. It is recorded before the model sees it. With `settle`, a question of the tool
        waits until the other tools have ended, for frameworks that stop them when one raises."""

        async def begun() -> Json:
            await self.show_call(call)
            return await work()

        try:
            with self._busy(), _working_on(_Call(self, f"{call.round}.{call.id}")):
                return await self._step(call.tool, f"{call.round}.{call.id}", begun)
        except Asked:
            if settle:
                await self._idle.wait()
            raise

    @contextmanager
    def _busy(self) -> Generator[None]:
        """Count the tools that are running."""
        self._tools += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._tools -= 1
            if not self._tools:
                self._idle.set()

    async def _step(self, name: str, key: str, work: Callable[[], Awaitable[Json]]) -> Json:
        async def worked() -> Json:
            try:
                result = await work()
            except Exception as error:  # noqa: BLE001 - the framework decides what follows
                raise _Raised(error) from None
            # Outputs of the call are written before its result, so that they cannot get lost.
            await self._outputs.join()
            return result

        try:
            return await self.turn.step(name[:100], worked, key=f"{self._since}.{key}", shown=False)
        except _Raised as raised:
            raise raised.error from None

    # Outputs and questions.

    async def say(self, output: Output) -> None:
        await self._outputs.put(output)
        self._said = self._said or isinstance(output, Text)

    async def show_call(self, call: PendingCall) -> None:
        """Show that a tool is called."""
        await self.say(Status(f"Calling {call.shown}"))

    async def text(self, text: str, *, begins: bool = False) -> None:
        """Stream a piece of the answer. A text that `begins` starts a new paragraph."""
        if text:
            await self.say(Text(BETWEEN + text if begins and self._said else text))

    @property
    def said(self) -> bool:
        """True if the answer has some text."""
        return self._said

    def ask(self, question: CallerQuestion) -> list[Json]:
        """Return the answers to a question, if it was answered. Else end the loop with it."""
        if any(key not in self._answers for key in question.keys):
            raise Asked(question)
        return [self._answers[key] for key in question.keys]

    def approvals(self, calls: Sequence[PendingCall]) -> dict[str, bool]:
        """Return which calls a person approved, by their ids. Ask about all that are not decided yet."""
        if missing := [call for call in calls if call.key not in self._answers]:
            self.ask(approval_of(missing))
        return {call.id: self._answers[call.key] in (APPROVE, True) for call in calls}


def _question_in(error: BaseException) -> CallerQuestion | None:
    """Return the question with which a loop ended. A framework may wrap the exception that asks it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, Asked):
            return seen.question
        if isinstance(seen, BaseExceptionGroup):
            return next(filter(None, map(_question_in, cast(Sequence[BaseException], seen.exceptions))), None)
        seen = seen.__cause__
    return None


def _answer(turn: Turn) -> Json:
    """Return the answer to a question. If any answer would do, data counts more than text."""
    data = [msgspec.json.decode(part.data) for part in turn.inputs[0].parts if part.data is not UNSET]
    return data[0] if data and isinstance(turn.answer, str) else turn.answer


class _Missing(BaseException):
    """Ends a step that was only looked up, without a record."""


class _Raised(BaseException):
    """Carries an exception out of a step without a record: the framework may handle it and call again."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _Call:
    """The tool call that the current task works on; outside of tools, the loop itself."""

    def __init__(self, turn: FrameworkTurn, id: str = "") -> None:
        self.turn = turn
        self.id = id
        self.models = 0
        self._questions = 0

    def next_model(self) -> int:
        self.models += 1
        return self.models

    def next_question(self) -> int:
        self._questions += 1
        return self._questions


_CALL: ContextVar[_Call | None] = ContextVar("tool_call", default=None)


@contextmanager
def _working_on(call: _Call) -> Generator[None]:
    token = _CALL.set(call)
    try:
        yield
    finally:
        _CALL.reset(token)


def _current() -> _Call:
    call = _CALL.get()
    if call is None:
        raise AgentError("This can only be called in a tool of an agent that Parley serves.")
    return call


def ask_caller(
    question: str, *, choices: Sequence[str] = (), schema: Mapping[str, object] | type | None = None
) -> Json:
    """Ask the caller a question from a tool of a framework, and return the answer.

    The first call ends the turn. When the answer has come, the tool starts again from its beginning, and this call
    returns the answer: do not do work before it that must not be repeated.
    """
    call = _current()
    need = NeedInput(question, choices=choices, schema=schema)
    return call.turn.ask(CallerQuestion((f"ask.{call.id}.{call.next_question()}",), need))[0]


async def emit(output: Output | str) -> None:
    """Send an output from a tool of a framework, such as an `ArtifactChunk` or a `Status`."""
    await _current().turn.say(Text(output) if isinstance(output, str) else output)


# Values of frameworks.


def usage_of(model: object, read: object, written: object, cached: object = 0) -> Usage | None:
    """Return the usage of a model call; None if the model reported no tokens."""
    counts = [min(max(0, one), MAX_TOKENS) if isinstance(one, int) else 0 for one in (read, written, cached)]
    if not counts[0] and not counts[1]:
        return None
    name = "".join(one for one in str(model or "") if one.isprintable())
    return Usage(name or "unknown", counts[0], counts[1], min(counts[2], counts[0]))


def text_of_part(part: Part) -> str | None:
    """Return the text of a part that is text or data; None if it is a file or a link."""
    if part.data is not UNSET:
        return bytes(part.data).decode()
    return part.text


def object_of(value: object) -> Fields:
    """Return a value as an object: a result of another type is its member `value`."""
    plain: Json = msgspec.to_builtins(value, enc_hook=_plain)
    return fields_of(plain) if isinstance(plain, dict) else {"value": plain}


def _plain(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)
