"""Records the answers of models that nodes of a graph call, as LangChain's cache of model answers.

A node may call several models, or ask a question after a call. When it starts again, after a crash or with the answer
to its question, each call that it repeats gets the recorded answer. A call is identified by its node, its messages, and
its number among the node's calls with the same messages.
"""

import asyncio
import base64
import hashlib
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from langchain_core.caches import BaseCache
from langchain_core.globals import get_llm_cache, set_llm_cache
from langchain_core.outputs import ChatGeneration, Generation
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.config import get_config

from parley.drivers.framework import FrameworkTurn, usage_of
from parley.json_values import Fields, Json, fields_of
from parley.runs.rules.usage import Usage

T = TypeVar("T")
RECORDED = "parley_recorded"
"""Key in a generation's information: its usage is in the log already."""
_SERDE = JsonPlusSerializer()
_ASKED: ContextVar[str] = ContextVar("asked_model_call", default="")
"""Id of the call that this task has looked up last."""


class ModelCalls:
    """The model calls of one turn of a graph."""

    def __init__(self, work: FrameworkTurn) -> None:
        self.work = work
        self._loop = asyncio.get_running_loop()
        self._awaited: set[Future[Any]] = set()
        """Work that threads wait for."""
        self._closed = False
        self.earlier: set[str] = set()
        """Ids of the messages that an earlier turn has shown."""
        self._counts: Counter[str] = Counter()

    def awaited(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work in the loop of the turn, from the thread of a node that is a plain function."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._awaited.add(future)
        future.add_done_callback(self._awaited.discard)
        if self._closed:
            future.cancel()
        return future.result()

    def close(self) -> None:
        """Let no thread wait any longer, because the turn has ended."""
        self._closed = True
        for future in list(self._awaited):
            future.cancel()

    def id_of(self, prompt: str, model: str) -> str:
        """Return the id of the next call with this prompt."""
        digest = hashlib.sha256(f"{model}\n{prompt}".encode()).hexdigest()[:32]
        call = f"{_node()}.{digest}"
        self._counts[call] += 1
        return f"{call}.{self._counts[call]}"

    async def find(self, call: str) -> list[Generation] | None:
        """Return the recorded answer of a call."""
        record = await self.work.recorded("model", call)
        if record is None:
            return None
        found = fields_of(record)
        answers = cast(list[Any], loaded(found["answers"], _SERDE))
        if found["turn"] != self.work.turn.number:
            self.earlier |= {one.id for one in answers if not isinstance(one, str)}
        return [_generation(one) for one in answers]

    async def keep(self, call: str, generations: Sequence[Generation]) -> None:
        """Record the answer of a call, and the usage of its model together with it."""
        for one in generations:
            if isinstance(one, ChatGeneration):
                record_usage(self.work, one)
        answers = [one.message if isinstance(one, ChatGeneration) else one.text for one in generations]
        record: Fields = {"turn": self.work.turn.number, "answers": dumped(answers, _SERDE)}
        await self.work.keep("model", call, record)


MODEL_CALLS: ContextVar[ModelCalls | None] = ContextVar("model_calls", default=None)
"""The model calls of the turn that the current task works for."""


def record_usage(work: FrameworkTurn, generation: ChatGeneration) -> None:
    """Record the usage of a model call, once."""
    about = generation.generation_info or {}
    usage = None if RECORDED in about else _usage(generation.message)
    generation.generation_info = {**about, RECORDED: True}
    if usage is not None:
        work.turn.record(usage)


def _usage(message: Any) -> Usage | None:
    counted = cast(Mapping[str, Any], getattr(message, "usage_metadata", None) or {})
    told = cast(Mapping[str, Any], getattr(message, "response_metadata", None) or {})
    details = cast(Mapping[str, Any], counted.get("input_token_details") or {})
    model = told.get("model_name") or told.get("model")
    return usage_of(model, counted.get("input_tokens"), counted.get("output_tokens"), details.get("cache_read"))


def _generation(answer: Any) -> Generation:
    if isinstance(answer, str):
        return Generation(text=answer)
    return ChatGeneration(message=answer, generation_info={RECORDED: True})


def _node() -> str:
    """Return the place of the node that runs: its name and the id of its task, below those of the graphs around it."""
    try:
        return str(get_config().get("configurable", {}).get("checkpoint_ns", ""))
    except RuntimeError:
        return ""


class _StepCache(BaseCache):
    """LangChain's cache of model answers, as far as graphs are concerned that Parley runs."""

    def lookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        calls = MODEL_CALLS.get()
        if calls is None or _in_loop():
            return None
        _ASKED.set(calls.id_of(prompt, llm_string))
        return calls.awaited(calls.find(_ASKED.get()))

    def update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        calls = MODEL_CALLS.get()
        if calls is not None and not _in_loop():
            calls.awaited(calls.keep(_ASKED.get(), return_val))

    async def alookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        calls = MODEL_CALLS.get()
        if calls is None:
            return None
        _ASKED.set(calls.id_of(prompt, llm_string))
        return await calls.find(_ASKED.get())

    async def aupdate(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        calls = MODEL_CALLS.get()
        if calls is not None:
            await calls.keep(_ASKED.get(), return_val)

    def clear(self, **kwargs: Any) -> None:
        """Nothing is stored here: the log is append-only."""


def _in_loop() -> bool:
    """Return whether this thread runs an event loop, and so cannot wait for one: a coroutine called a model without
    awaiting it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def use_step_cache() -> None:
    """Have LangChain look up model calls in the log, unless the program has set a cache of its own."""
    if get_llm_cache() is None:
        set_llm_cache(_StepCache())


# Values of LangChain, as JSON.


def dumped(value: Any, serde: Any) -> Json:
    kind, body = serde.dumps_typed(value)
    return [kind, base64.b64encode(body).decode()]


def loaded(stored: Json, serde: Any) -> Any:
    kind, body = cast(list[str], stored)
    return serde.loads_typed((kind, base64.b64decode(body)))
