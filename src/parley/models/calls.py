"""Calls of models: each has a span, and its usage is recorded in the log of the current turn."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from parley.errors import ModelError
from parley.execution.turn import CURRENT, Turn
from parley.models.llm import Answered, Finish, Llm, Sampling, Speech, TokenUsage
from parley.runs.rules.agents import vendor_and_model
from parley.runs.rules.usage import MAX_NAME, MAX_TOKENS, Usage
from parley.telemetry import span


async def called(llm: Llm, messages: Sequence[Speech], sampling: Sampling) -> AsyncGenerator[Answered, None]:
    """Stream a model's answer. The usage is recorded also if the call fails or is canceled after the vendor has
    reported it."""
    turn, told = CURRENT.get(), None
    if turn is not None:
        await turn.check_budget()
    with span("model.call", **_fields(turn, sampling)) as call:
        try:
            async with aclosing(llm.stream(messages, sampling)) as outputs:
                async for output in outputs:
                    if isinstance(output, TokenUsage):
                        told = output
                    elif isinstance(output, Finish):
                        call.note(finish=output.reason)
                    yield output
        except ModelError as error:
            call.outcome = "failed"
            call.note(code=error.code)
            raise
        finally:
            if told is not None and (usage := usage_of(told)) is not None:
                call.note(
                    response_model=usage.model,
                    input_tokens=usage.input_tokens,
                    output_tokens=usage.output_tokens,
                    cached_tokens=usage.cached_tokens,
                )
                record(usage)


def record(usage: Usage | None) -> None:
    """Record usage in the log of the current turn, if there is one."""
    turn = CURRENT.get()
    if turn is not None and usage is not None:
        turn.record(usage)


def usage_of(told: TokenUsage) -> Usage | None:
    """Return the usage of a call; None if the vendor reported no tokens."""
    if told.input_tokens is None and told.output_tokens is None:
        return None
    read = _count(told.input_tokens) + _count(told.uncounted_tokens)
    model = "".join(one for one in told.model if one.isprintable())[:MAX_NAME]
    return Usage(model or "unknown", read, _count(told.output_tokens), min(_count(told.cached_tokens), read))


def _count(tokens: object) -> int:
    """Return a number of tokens. Servers that only resemble a vendor's may send anything."""
    return min(max(0, tokens), MAX_TOKENS) if isinstance(tokens, int) else 0


def _fields(turn: Turn | None, sampling: Sampling) -> dict[str, str]:
    """Return the fields of the span: the vendor and the model, and the task. No content."""
    if turn is None:
        return {"model": sampling.model or ""}
    provider, model = vendor_and_model(turn.agent)
    return {
        "agent": turn.agent.slug,
        "provider": provider,
        "model": sampling.model or model,
        "run": turn.run_id,
        "conversation": turn.conversation,
    }
