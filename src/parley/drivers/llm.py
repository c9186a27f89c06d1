"""A language model as an agent: it reads what was said before and the new input, uses its tools, streams its answer."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import asdict, replace

from parley.core.agents import Agent
from parley.core.artifacts import text_of, text_part
from parley.core.conversations import Message, sampling_of
from parley.core.dialogue import Round as Said
from parley.core.events import Rejected
from parley.core.functions import Returned
from parley.core.planning import Candidate
from parley.core.turns import NeedInput, Output, Reply, Status, Text
from parley.drivers.answers import Answer
from parley.drivers.planning import planned
from parley.drivers.toolrounds import Round, Toolset, agreed, begun, declined, mark, question
from parley.drivers.tooluse import Held, ToolUse
from parley.engine.planning import ModelPlan
from parley.engine.ports import Llm, Sampling, Speech
from parley.engine.turns import Turn
from parley.errors import (
    ContentNotSupported,
    ModelError,
    ModelInterrupted,
    ModelNotAllowed,
    TokenLimitExceeded,
    TooManyRounds,
)
from parley.telemetry import tell

HISTORY = 20
MAX_ROUNDS = 10
ATTEMPTS = 2
"""A stream that breaks before its first word is begun anew once."""


class LlmDriver:
    def __init__(
        self, agent: Agent, llm: Llm, sampling: Sampling, history: int = HISTORY, approve: Sequence[str] = (),
        max_rounds: int = MAX_ROUNDS, models: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`approve`: the tools that a person has to agree to. `models`: the models that callers may choose beside the
        agent's own; `*` stands for any characters."""
        self._agent = agent
        self._llm = llm
        self._sampling = sampling
        self._history = history
        self._approve = tuple(approve)
        self._max_rounds = max_rounds
        self._models = tuple(models)
        self._held = Held()

    @property
    def llm(self) -> Llm:
        return self._llm

    @property
    def agent(self) -> Agent:
        return self._agent

    @property
    def approve(self) -> tuple[str, ...]:
        """The tools that a person has to agree to, whoever calls them."""
        return self._approve

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LlmDriver) and self._made_of == other._made_of

    def __hash__(self) -> int:
        return hash(self._agent.slug)

    @property
    def _made_of(self) -> tuple[object, ...]:
        limits = self._approve, self._max_rounds, self._models
        return self._agent, self._llm, self._sampling, self._history, limits

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        answer = Answer(self._agent.model or "")
        streamed = self._agent.replies != "message"
        try:
            async with aclosing(self._work(turn, answer)) as outputs:
                async for output in outputs:
                    if streamed or not isinstance(output, Text):
                        yield output
        except (ContentNotSupported, ModelNotAllowed, TokenLimitExceeded) as error:
            yield Rejected(error.code, error.message)
            return
        except ModelError as error:
            tell("model.failed", run=turn.run_id, agent=self._agent.slug, code=error.code, **error.details)
            if answer.said and streamed:
                yield Text("", answer.about)
            raise
        if streamed:
            yield Text("", answer.about)
        if not answer.said:
            raise ModelError(f"The model ended without an answer ({answer.reason}).")
        if not streamed:
            yield Reply("".join(answer.said), answer.about)

    async def plan(self, turn: Turn, agents: Sequence[Candidate]) -> ModelPlan:
        """The model makes a plan of it, without its tools."""
        talk = _Talk(turn, ToolUse(turn, self._held))
        await talk.open(self._history)
        return await planned(self._llm, self._how(turn), talk.messages, agents, self._agent.model or "")

    async def _work(self, turn: Turn, answer: Answer) -> AsyncGenerator[Output, None]:
        tools = Toolset(await turn.tools(), self._approve, self._held.salt)
        talk = _Talk(turn, ToolUse(turn, self._held))
        await talk.open(self._history)
        for text in answer.again(one.text for one in talk.begun.rounds if one.turn == turn.number):
            yield text
        async with aclosing(talk.caught_up()) as outputs:
            async for output in outputs:
                yield output
        async with aclosing(self._rounds(talk, tools, answer)) as outputs:
            async for output in outputs:
                yield output

    async def _rounds(self, talk: "_Talk", tools: Toolset, answer: Answer) -> AsyncGenerator[Output, None]:
        """Until the model wants nothing more called, or a person has to be asked."""
        while True:
            async with aclosing(self._asked(talk, tools, answer)) as pieces:
                async for piece in pieces:
                    yield piece
            if not answer.wanted:
                return
            if talk.rounds >= self._max_rounds:
                raise TooManyRounds(f"The model wanted tools called more than {self._max_rounds} times in a row.")
            one = tools.round(talk.turn.number, talk.rounds + 1, answer.text_of_round, answer.wanted)
            self._held.keep(talk.turn, one, answer.wanted)
            yield Status(self._words(one), mark(one))
            async with aclosing(talk.through(one)) as outputs:
                async for output in outputs:
                    yield output

    def _words(self, one: Round) -> str | tuple[()]:
        """An agent that answers with a message says nothing before it."""
        if self._agent.replies == "message":
            return ()
        return f"Calling {', '.join(call.tool or call.function for call in one.calls)}."

    async def _asked(self, talk: "_Talk", tools: Toolset, answer: Answer) -> AsyncGenerator[Text, None]:
        sampling = replace(self._how(talk.turn), functions=tools.functions)
        answer.begin_round()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with aclosing(self._llm.stream(talk.messages, sampling)) as outputs:
                    async for output in outputs:
                        for text in answer.heard(output):
                            yield text
                return
            except ModelInterrupted as error:
                if answer.text_of_round or attempt == ATTEMPTS:
                    raise
                tell("model.asked_again", run=talk.turn.run_id, agent=self._agent.slug, **error.details)

    def _how(self, turn: Turn) -> Sampling:
        """As the agent is defined; but whoever asks for a document may choose otherwise for this once."""
        asked = sampling_of(turn.message) if turn.assignment is not None else {}
        if not asked:
            return self._sampling
        if "model" in asked:
            asked["model"] = self._bare(str(asked["model"]))
        how = msgspec.convert({**asdict(self._sampling), **asked}, Sampling)
        # Checked when the document was asked for; but a later message of the same task may say otherwise.
        self.check_sampling(how.model, how.max_tokens)
        return how

    def check_sampling(self, model: str | None, max_tokens: int | None) -> None:
        """Refuse a model or a number of tokens that the agent's definition does not allow."""
        allowed = [self._bare(one) for one in (self._agent.model or "", *self._models)]
        if model is not None and not any(fnmatchcase(self._bare(model), one) for one in allowed):
            raise ModelNotAllowed(
                f"Agent {self._agent.slug} cannot be asked with the model {model[:80]!r}; it allows "
                f"{', '.join(allowed)}.", field="model", reason=ModelNotAllowed.code,
            )  # fmt: skip
        most = self._sampling.max_tokens
        if max_tokens is not None and most is not None and max_tokens > most:
            raise TokenLimitExceeded(
                f"Agent {self._agent.slug} answers with at most {most:,} tokens; ask for no more.",
                field="maxTokens", limit=most, reason=TokenLimitExceeded.code,
            )  # fmt: skip

    def _bare(self, model: str) -> str:
        """The name of a model without the agent's vendor before it."""
        return model.removeprefix(f"{(self._agent.model or '').partition(':')[0]}:")


class _Talk:
    """What the model reads, as it grows by what its tools say."""

    def __init__(self, turn: Turn, use: ToolUse) -> None:
        self.turn = turn
        self.begun = begun(turn)
        self.messages: list[Speech] = []
        self.rounds = 0
        self._use = use
        self._replies = {turn.number: turn.text}
        """What people said, by the turns that it began."""

    async def open(self, history: int) -> None:
        """What was said before the matter began, and with what it began."""
        earlier = self.begun.earlier
        recalled = await self.turn.recall(history + earlier)
        before, since = recalled[: len(recalled) - earlier], recalled[len(recalled) - earlier :]
        said = [speech for one in before if one.answer for speech in await _speeches(self.turn, one)]
        for number, one in enumerate(since, self.turn.number - earlier):
            self._replies[number] = "\n".join(text_of(message.parts) for message in one.asked)
        first = since[0].asked if since else tuple(self.turn.inputs)
        new = [await _heard(self.turn, message) for message in first if not _is_blank(message)]
        if not new:
            raise ContentNotSupported("There is nothing to answer: the message is blank.")
        self.messages = [*said, *new]

    async def caught_up(self) -> AsyncGenerator[Output, None]:
        """Through the rounds that the log knows of."""
        for one in self.begun.rounds:
            async with aclosing(self.through(one, again=True)) as outputs:
                async for output in outputs:
                    yield output

    async def through(self, one: Round, *, again: bool = False) -> AsyncGenerator[Output, None]:
        """A round, with its results; a question ends the turn where a person has to agree first."""
        self.rounds += 1
        answered = one.turn + 1
        if one.asks and answered not in self._replies:
            yield NeedInput(question(one))
            return
        if one.asks and not agreed(self._replies[answered]):
            self._heard(one, [declined(call, self._replies[answered]) for call in one.calls])
            return
        async with aclosing(self._use.results(one, again=again)) as results:
            async for output in results:
                if isinstance(output, Status):
                    yield output
                else:
                    self._heard(one, output)

    def _heard(self, one: Round, results: Sequence[Returned]) -> None:
        self.messages += [one.speech(), Speech("user", (), results=tuple(results))]


def _is_blank(message: Message) -> bool:
    return all(part.text is not None and not part.text.strip() for part in message.parts)


async def _heard(turn: Turn, message: Message) -> Speech:
    return Speech("user", await turn.loaded(message.parts))


async def _speeches(turn: Turn, one: Said) -> list[Speech]:
    asked = [await _heard(turn, message) for message in one.asked]
    return [*asked, Speech("agent", (text_part(one.answer),))]
