"""A language model as an agent: it reads the conversation and the new input, calls tools and streams its answer."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from parley.drivers.kind import Site, blank
from parley.drivers.llm.tool_rounds import (
    HeldCalls,
    ModelAnswer,
    ToolRound,
    Toolset,
    ToolUse,
    agreed,
    begun,
    declined,
    mark,
    question,
)
from parley.errors import (
    ContentNotSupported,
    Invalid,
    ModelError,
    ModelInterrupted,
    ModelNotAllowed,
    PlanInvalid,
    TokenLimitExceeded,
    TooManyRounds,
)
from parley.execution.driver import ModelPlan
from parley.execution.rules import NeedInput, Output, Reply, Status, Text
from parley.execution.turn import Turn
from parley.models.calls import called, record
from parley.models.endpoint import ModelAccess, open_model
from parley.models.llm import READS, Llm, Sampling, Speech
from parley.orchestrations.rules.plan import Steps, check_plan
from parley.orchestrations.rules.prompts import Candidate, instructions_for, plan_in, refusal_among, repair
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import Message, sampling_of, text_of, text_part
from parley.runs.rules.events import Rejected
from parley.runs.rules.transcript import TurnRound as Said
from parley.telemetry import tell
from parley.tools.rules.mcp import Returned

# Ask a language model for a plan.


async def planned(
    llm: Llm, sampling: Sampling, messages: Sequence[Speech], agents: Sequence[Candidate], model: str = ""
) -> ModelPlan:
    """Ask the model for a plan that uses these agents. If the plan is invalid, the model may correct it once."""
    sampling = replace(sampling, instructions=instructions_for(agents, sampling.instructions))
    heard = ModelAnswer(model)
    answer = await _answer(llm, messages, sampling, heard)
    try:
        return ModelPlan(_usable(answer, agents), heard.model, heard.tokens)
    except PlanInvalid as error:
        tell("plan.repaired", reason=error.message)
        said = Speech("agent", (text_part(answer or "…"),)), Speech("user", (text_part(repair(error)),))
        steps = _usable(await _answer(llm, [*messages, *said], sampling, heard), agents)
        return ModelPlan(steps, heard.model, heard.tokens)


async def _answer(llm: Llm, messages: Sequence[Speech], sampling: Sampling, heard: ModelAnswer) -> str:
    """Return the model's answer. It is not streamed to a caller, so an interrupted answer is simply requested again."""
    try:
        return await _answer_of_round(llm, messages, sampling, heard)
    except ModelInterrupted:
        return await _answer_of_round(llm, messages, sampling, heard)


async def _answer_of_round(llm: Llm, messages: Sequence[Speech], sampling: Sampling, heard: ModelAnswer) -> str:
    heard.begin_round()
    async with aclosing(called(llm, messages, sampling)) as outputs:
        async for output in outputs:
            for _ in heard.heard(output):
                pass
    return heard.text_of_round


def _usable(answer: str, agents: Sequence[Candidate]) -> Steps:
    steps = plan_in(answer)
    check_plan(steps, refusal_among(agents))
    return steps


HISTORY = 20
MAX_ROUNDS = 10
ATTEMPTS = 2
"""A stream that breaks before its first word is retried once."""


# Why: docs/decisions/models-and-llm.md#fail-an-answer-that-breaks-off-with-its-text
class LlmDriver:
    def __init__(
        self,
        agent: Agent,
        llm: Llm,
        sampling: Sampling,
        history: int = HISTORY,
        approve: Sequence[str] = (),
        max_rounds: int = MAX_ROUNDS,
        models: Sequence[str] = (),
    ) -> None:
        """`approve`: tools that a person must approve before each call. `models`: models that callers may choose in
        addition to the agent's own; `*` matches any characters."""
        self._agent = agent
        self._llm = llm
        self._sampling = sampling
        self._history = history
        self._approve = tuple(approve)
        self._max_rounds = max_rounds
        self._models = tuple(models)
        self._held = HeldCalls()

    @property
    def llm(self) -> Llm:
        return self._llm

    @property
    def agent(self) -> Agent:
        return self._agent

    @property
    def approve(self) -> tuple[str, ...]:
        """Tools that a person must approve before each call, whichever caller uses them."""
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
        answer = ModelAnswer(self._agent.model or "")
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
            raise ModelError(f"The model ended without an answer (finish reason: {answer.reason}).")
        if not streamed:
            yield Reply("".join(answer.said), answer.about)

    async def plan(self, turn: Turn, agents: Sequence[Candidate]) -> ModelPlan:
        """Ask the model for a plan. It has no tools while it plans."""
        dialogue = _ModelDialogue(turn, ToolUse(turn, self._held))
        await dialogue.open(self._history)
        return await planned(self._llm, self._sampling_for(turn), dialogue.messages, agents, self._agent.model or "")

    async def _work(self, turn: Turn, answer: ModelAnswer) -> AsyncGenerator[Output, None]:
        tools = Toolset(await turn.tools(), self._approve, self._held.salt)
        dialogue = _ModelDialogue(turn, ToolUse(turn, self._held))
        await dialogue.open(self._history)
        for text in answer.again(one.text for one in dialogue.begun.rounds if one.turn == turn.number):
            yield text
        async with aclosing(dialogue.caught_up()) as outputs:
            async for output in outputs:
                yield output
        async with aclosing(self._rounds(dialogue, tools, answer)) as outputs:
            async for output in outputs:
                yield output

    async def _rounds(
        self, dialogue: "_ModelDialogue", tools: Toolset, answer: ModelAnswer
    ) -> AsyncGenerator[Output, None]:
        """Repeat rounds until the model requests no more tool calls, or a person must approve a call."""
        while True:
            async with aclosing(self._asked(dialogue, tools, answer)) as pieces:
                async for piece in pieces:
                    yield piece
            if not answer.wanted:
                return
            if dialogue.rounds >= self._max_rounds:
                raise TooManyRounds(f"The model requested tool calls more than {self._max_rounds} times in a row.")
            one = tools.round(dialogue.turn.number, dialogue.rounds + 1, answer.text_of_round, answer.wanted)
            self._held.keep(dialogue.turn, one, answer.wanted)
            yield Status(self._words(one), mark(one))
            async with aclosing(dialogue.through(one)) as outputs:
                async for output in outputs:
                    yield output

    def _words(self, one: ToolRound) -> str | tuple[()]:
        """Return the status text of a round. It is empty for an agent that answers with a direct message, because
        nothing may come before that message."""
        if self._agent.replies == "message":
            return ()
        return f"Calling {', '.join(call.tool or call.function for call in one.calls)}."

    async def _asked(
        self, dialogue: "_ModelDialogue", tools: Toolset, answer: ModelAnswer
    ) -> AsyncGenerator[Text, None]:
        sampling = replace(self._sampling_for(dialogue.turn), functions=tools.functions)
        answer.begin_round()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with aclosing(called(self._llm, dialogue.messages, sampling)) as outputs:
                    async for output in outputs:
                        for text in answer.heard(output):
                            yield text
                record(answer.estimate(dialogue.messages, sampling.instructions or ""))
                return
            except ModelInterrupted as error:
                if answer.text_of_round or attempt == ATTEMPTS:
                    raise
                tell("model.asked_again", run=dialogue.turn.run_id, agent=self._agent.slug, **error.details)

    def _sampling_for(self, turn: Turn) -> Sampling:
        """Return the sampling of the agent's definition, with the values that a document request sets for itself."""
        asked = sampling_of(turn.message) if turn.assignment is not None else {}
        if not asked:
            return self._sampling
        if "model" in asked:
            asked["model"] = self._bare(str(asked["model"]))
        how = msgspec.convert({**asdict(self._sampling), **asked}, Sampling)
        # The document request was checked already, but a later message of the same task may set other values.
        self.check_sampling(how.model, how.max_tokens)
        return how

    def check_sampling(self, model: str | None, max_tokens: int | None) -> None:
        """Raise for a model or a number of tokens that the agent's definition does not allow."""
        allowed = [self._bare(one) for one in (self._agent.model or "", *self._models)]
        if model is not None and not any(fnmatchcase(self._bare(model), one) for one in allowed):
            raise ModelNotAllowed(
                f"Agent {self._agent.slug} does not allow the model {model[:80]!r}; allowed models: "
                f"{', '.join(allowed)}.",
                field="model",
                reason=ModelNotAllowed.code,
            )
        most = self._sampling.max_tokens
        if max_tokens is not None and most is not None and max_tokens > most:
            raise TokenLimitExceeded(
                f"Agent {self._agent.slug} allows at most {most:,} tokens per answer; request fewer.",
                field="maxTokens",
                limit=most,
                reason=TokenLimitExceeded.code,
            )

    def _bare(self, model: str) -> str:
        """Remove the prefix of the agent's vendor from a model name."""
        return model.removeprefix(f"{(self._agent.model or '').partition(':')[0]}:")


class _ModelDialogue:
    """The messages that the model reads. They grow with the results of its tool calls."""

    def __init__(self, turn: Turn, use: ToolUse) -> None:
        self.turn = turn
        self.begun = begun(turn)
        self.messages: list[Speech] = []
        self.rounds = 0
        self._use = use
        self._replies = {turn.number: turn.text}
        """The user's messages, by the number of the turn that each one started."""

    async def open(self, history: int) -> None:
        """Load the conversation so far, and the message that started the current work."""
        earlier = self.begun.earlier
        recalled = await self.turn.recall(history + earlier)
        before, since = recalled[: len(recalled) - earlier], recalled[len(recalled) - earlier :]
        said = [speech for one in before if one.answer for speech in await _speeches(self.turn, one)]
        for number, one in enumerate(since, self.turn.number - earlier):
            self._replies[number] = "\n".join(text_of(message.parts) for message in one.asked)
        first = since[0].asked if since else tuple(self.turn.inputs)
        new = [await _speech_of(self.turn, message) for message in first if not _is_blank(message)]
        if not new:
            raise ContentNotSupported("The message is blank. Send some text or a file.")
        self.messages = [*said, *new]

    async def caught_up(self) -> AsyncGenerator[Output, None]:
        """Replay the rounds that are in the log."""
        for one in self.begun.rounds:
            async with aclosing(self.through(one, again=True)) as outputs:
                async for output in outputs:
                    yield output

    async def through(self, one: ToolRound, *, again: bool = False) -> AsyncGenerator[Output, None]:
        """Run the calls of a round and add their results. If a person must approve first, end the turn with a
        question."""
        self.rounds += 1
        answered = one.turn + 1
        if one.asks and answered not in self._replies:
            yield NeedInput(question(one))
            return
        if one.asks and not agreed(self._replies[answered]):
            self._add_results(one, [declined(call, self._replies[answered]) for call in one.calls])
            return
        async with aclosing(self._use.results(one, again=again)) as results:
            async for output in results:
                if isinstance(output, Status):
                    yield output
                else:
                    self._add_results(one, output)

    def _add_results(self, one: ToolRound, results: Sequence[Returned]) -> None:
        self.messages += [one.speech(), Speech("user", (), results=tuple(results))]


def _is_blank(message: Message) -> bool:
    return all(part.text is not None and not part.text.strip() for part in message.parts)


async def _speech_of(turn: Turn, message: Message) -> Speech:
    return Speech("user", await turn.loaded(message.parts))


async def _speeches(turn: Turn, one: Said) -> list[Speech]:
    asked = [await _speech_of(turn, message) for message in one.asked]
    return [*asked, Speech("agent", (text_part(one.answer),))]


# The driver `llm` in a definition: which model to use, and with which parameters.

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class LlmOptions(Struct, frozen=True):
    model: str | None = None
    """The agent's model, if it is not given as `model` of the agent itself."""
    instructions: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    """Maximum length of an answer. Callers may choose a smaller number for a document, not a larger one."""
    models: tuple[str, ...] = ()
    """Other models of the same vendor that callers may choose for a document; `*` matches any characters."""
    base_url: str | None = None
    """URL of another server with the vendor's API."""
    key_from: str | None = None
    """Name of the environment variable that holds the API key. With `base_url`, no key is sent unless this is set."""
    history: int = HISTORY
    """Number of earlier exchanges of the conversation that the model reads."""
    timeout_s: float = 60.0
    """Longest time that the vendor may send nothing."""
    retries: int = 2
    approve: tuple[str, ...] = ()
    """Tools that a person must approve before each call: `server/tool`, `server`, or `*` for all."""
    max_rounds: int = MAX_ROUNDS
    """Maximum number of tool rounds in a row."""


def start_llm(slug: str, options: LlmOptions, site: Site) -> Agent:
    return replace(blank(slug, options, site), model=options.model, input_modes=READS)


def build_llm(agent: Agent, options: LlmOptions, site: Site) -> LlmDriver:
    _check(options)
    if agent.model is None:
        raise Invalid("is missing; set it to openai:NAME, anthropic:NAME or offline", field="model")
    if options.model not in (None, agent.model):
        raise Invalid("is given twice; remove one of them", field="model")
    if options.temperature is not None and agent.model.startswith("anthropic:"):
        raise Invalid("Anthropic models accept no temperature; remove it", field="temperature")
    llm = open_model(agent.model, ModelAccess(options.base_url, options.key_from, options.timeout_s, options.retries))
    if agent.input_modes == READS:
        agent = replace(agent, input_modes=llm.reads)
    sampling = Sampling(options.instructions, options.temperature, options.max_tokens)
    return LlmDriver(agent, llm, sampling, options.history, options.approve, options.max_rounds, options.models)


def _check(options: LlmOptions) -> None:
    if options.key_from is not None and _VARIABLE.fullmatch(options.key_from) is None:
        raise Invalid("must be the name of an environment variable, not the key itself", field="key_from")
    for name, least, most in (
        ("temperature", 0, 2),
        ("max_tokens", 1, 10_000_000),
        ("history", 0, 1000),
        ("max_rounds", 1, 1000),
        ("timeout_s", 0.001, 3600),
        ("retries", 0, 10),
    ):
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise Invalid(f"must be between {least} and {most}", field=name)
    if options.base_url is not None:
        _check_url(options.base_url)


def _check_url(text: str) -> None:
    try:
        url = urlsplit(text)
        right = url.scheme in ("http", "https") and url.hostname and not (url.username or url.query or url.fragment)
    except ValueError:
        right = False
    if not right:
        raise Invalid("must be an http or https URL without credentials, query or fragment", field="base_url")
