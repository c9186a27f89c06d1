"""A model that is none: it needs no key and no network, says so, and answers the same to the same."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from parley.core.planning import agents_offered
from parley.engine.ports import Delta, Finish, Sampling, Speech, Usage
from parley.models.content import TEXTS, words
from parley.models.drafts import drafted

NAME = "offline"
PAUSE_S = 0.02


@dataclass(frozen=True)
class OfflineModel:
    pause_s: float = PAUSE_S

    @property
    def reads(self) -> tuple[str, ...]:
        return TEXTS

    async def stream(
        self, messages: Sequence[Speech], sampling: Sampling
    ) -> AsyncGenerator[Delta | Usage | Finish, None]:
        read = [words(message.parts) for message in messages]
        counted = sum(len(text.split()) for text in (*read, sampling.instructions or ""))
        yield Usage(sampling.model or NAME, counted, 0)
        agents = agents_offered(sampling.instructions or "")
        answer = (_plan(read[-1], agents) if agents else _answer(messages, read))[: sampling.max_tokens]
        for place, word in enumerate(answer):
            yield Delta(f" {word}" if place else word)
            await asyncio.sleep(self.pause_s)
        yield Usage(sampling.model or NAME, counted, len(answer))
        yield Finish("length" if len(answer) == sampling.max_tokens else "stop")


def _answer(messages: Sequence[Speech], read: list[str]) -> list[str]:
    """A token is a word here."""
    if (document := drafted(messages[-1].parts)) is not None:
        return document.split(" ")
    before = f" Before that came {len(read) - 1} messages." if len(read) > 1 else ""
    return f"This is the offline model, which only repeats. You said: {read[-1]}{before}".split(" ")


def _plan(request: str, agents: list[str]) -> list[str]:
    """The agents that the request names, in that order, one after another; the first one if it names none."""
    named = [word.strip(".,:;!?`'\"") for word in request.lower().split()]
    chosen = list(dict.fromkeys(word for word in named if word in agents)) or agents[:1]
    steps = [
        {"id": agent, "agent": agent, "dependsOn": chosen[:place][-1:]} for place, agent in enumerate(chosen)
    ]  # fmt: skip
    return json.dumps({"steps": steps}).split(" ")
