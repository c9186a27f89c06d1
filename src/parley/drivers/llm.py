"""A language model as an agent: it reads what was said before and the new input, and streams its answer."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from parley.core.agents import Agent
from parley.core.artifacts import text_part
from parley.core.conversations import Message, sampling_of
from parley.core.dialogue import Round
from parley.core.events import Rejected
from parley.core.planning import instructions_for, plan_in, repair
from parley.core.plans import Steps, check_plan
from parley.core.turns import Output, Reply, Text
from parley.engine.ports import Delta, Finish, Llm, Sampling, Speech, Usage
from parley.engine.turns import Turn
from parley.errors import ContentNotSupported, ModelError, ModelInterrupted, PlanInvalid
from parley.telemetry import tell

HISTORY = 20
ATTEMPTS = 2
"""A stream that breaks before its first word is begun anew once."""


class LlmDriver:
    def __init__(self, agent: Agent, llm: Llm, sampling: Sampling, history: int = HISTORY) -> None:
        self._agent = agent
        self._llm = llm
        self._sampling = sampling
        self._history = history

    @property
    def agent(self) -> Agent:
        return self._agent

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LlmDriver) and self._made_of == other._made_of

    def __hash__(self) -> int:
        return hash(self._agent.slug)

    @property
    def _made_of(self) -> tuple[Agent, Llm, Sampling, int]:
        return self._agent, self._llm, self._sampling, self._history

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        answer = _Answer(self._agent.model or "")
        streamed = self._agent.replies != "message"
        try:
            messages = await self._messages(turn)
            async with aclosing(self._asked(messages, answer, turn)) as pieces:
                async for piece in pieces:
                    if streamed:
                        yield piece
        except ContentNotSupported as error:
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

    async def plan(self, turn: Turn, agents: Sequence[Agent]) -> Steps:
        """Ask the model for a plan; one that cannot be used it may correct once."""
        sampling = replace(self._sampling, instructions=instructions_for(agents, self._sampling.instructions))
        messages = await self._messages(turn)
        known = {agent.slug for agent in agents}
        answer = await self._planned(messages, sampling, turn)
        try:
            return _usable(answer, known)
        except PlanInvalid as error:
            tell("plan.repaired", run=turn.run_id, agent=self._agent.slug, reason=error.message)
            said = Speech("agent", (text_part(answer or "…"),)), Speech("user", (text_part(repair(error)),))
            return _usable(await self._planned([*messages, *said], sampling, turn), known)

    async def _planned(self, messages: list[Speech], sampling: Sampling, turn: Turn) -> str:
        answer = _Answer(self._agent.model or "")
        async with aclosing(self._asked(messages, answer, turn, sampling)) as pieces:
            async for _ in pieces:
                pass
        return "".join(answer.said)

    async def _asked(
        self, messages: list[Speech], answer: "_Answer", turn: Turn, sampling: Sampling | None = None
    ) -> AsyncGenerator[Text, None]:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with aclosing(self._llm.stream(messages, sampling or self._how(turn))) as outputs:
                    async for output in outputs:
                        for text in answer.heard(output):
                            yield text
                return
            except ModelInterrupted as error:
                if answer.said or attempt == ATTEMPTS:
                    raise
                tell("model.asked_again", run=turn.run_id, agent=self._agent.slug, **error.details)

    def _how(self, turn: Turn) -> Sampling:
        """As the agent is defined; but whoever asks for a document may choose otherwise for this once."""
        asked = sampling_of(turn.message) if turn.assignment is not None else {}
        vendor = (self._agent.model or "").partition(":")[0]
        if "model" in asked:
            asked["model"] = str(asked["model"]).removeprefix(f"{vendor}:")
        return msgspec.convert({**msgspec.structs.asdict(self._sampling), **asked}, Sampling)

    async def _messages(self, turn: Turn) -> list[Speech]:
        rounds = await turn.recall(self._history)
        said = [speech for one in rounds if one.answer for speech in await _speeches(turn, one)]
        new = [await _heard(turn, message) for message in turn.inputs if not _is_blank(message)]
        if not new:
            raise ContentNotSupported("There is nothing to answer: the message is blank.")
        return [*said, *new]


def _usable(answer: str, agents: set[str]) -> Steps:
    steps = plan_in(answer)
    check_plan(steps, lambda step: None if step.agent in agents else f"there is no agent {step.agent} here.")
    return steps


class _Answer:
    """What has come of an answer so far."""

    def __init__(self, model: str) -> None:
        self.said: list[str] = []
        self.reason = "interrupted"
        self._usage = Usage(model)

    @property
    def about(self) -> dict[str, object]:
        """What the log keeps of it: the model, what it took as far as the vendor told, and why it ended."""
        return {**self._maker, "finish": self.reason}

    @property
    def _maker(self) -> dict[str, object]:
        usage = self._usage
        counted = {"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens}
        return {"model": usage.model, "usage": counted}

    def heard(self, output: Delta | Usage | Finish) -> Iterator[Text]:
        match output:
            case Delta(text):
                # The first piece names the model: also an answer that is canceled says who gave it.
                yield Text(text, None if self.said else self._maker)
                self.said.append(text)
            case Usage():
                self._usage = output
            case Finish(reason):
                self.reason = reason


def _is_blank(message: Message) -> bool:
    return all(part.text is not None and not part.text.strip() for part in message.parts)


async def _heard(turn: Turn, message: Message) -> Speech:
    return Speech("user", await turn.loaded(message.parts))


async def _speeches(turn: Turn, one: Round) -> list[Speech]:
    asked = [await _heard(turn, message) for message in one.asked]
    return [*asked, Speech("agent", (text_part(one.answer),))]
