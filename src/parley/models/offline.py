"""A model that is none: it needs no key and no network, says so, and answers the same to the same.

It calls tools where it is told to: a line `use NAME {…}` in what it is asked, or else in its instructions, is a round
with this call; a line `also NAME {…}` after it adds a call to the same round.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from parley.core.artifacts import Parts
from parley.core.canonical import Fields
from parley.core.functions import Function, Wanted
from parley.core.planning import agents_offered
from parley.engine.ports import Answered, Delta, Finish, Sampling, Speech, Usage
from parley.models.content import TEXTS, words
from parley.models.drafts import drafted
from parley.models.functions import input_of

NAME = "offline"
PAUSE_S = 0.02
_LINE = re.compile(r"^[ \t]*(use|also)[ \t]+(\S+)[ \t]+(\{.*\})[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class OfflineModel:
    pause_s: float = PAUSE_S

    @property
    def reads(self) -> tuple[str, ...]:
        return TEXTS

    async def stream(self, messages: Sequence[Speech], sampling: Sampling) -> AsyncGenerator[Answered, None]:
        read = [words(message.parts) for message in messages if message.parts]
        counted = sum(len(text.split()) for text in (*read, sampling.instructions or ""))
        yield Usage(sampling.model or NAME, counted, 0)
        if wanted := _wanted(messages, sampling):
            for one in wanted:
                yield one
            yield Finish("tool_calls")
            return
        agents = agents_offered(sampling.instructions or "")
        answer = (_plan(read[-1], agents) if agents else _answer(read, messages))[: sampling.max_tokens]
        for place, word in enumerate(answer):
            yield Delta(f" {word}" if place else word)
            await asyncio.sleep(self.pause_s)
        yield Usage(sampling.model or NAME, counted, len(answer))
        yield Finish("length" if len(answer) == sampling.max_tokens else "stop")


def _plan(request: str, agents: list[str]) -> list[str]:
    """The agents that the request names, in that order, one after another; the first one if it names none."""
    named = [word.strip(".,:;!?`'\"") for word in request.lower().split()]
    chosen = list(dict.fromkeys(word for word in named if word in agents)) or agents[:1]
    steps = [{"id": one, "agent": one, "dependsOn": chosen[:place][-1:]} for place, one in enumerate(chosen)]
    return json.dumps({"steps": steps}).split(" ")


def _answer(read: list[str], messages: Sequence[Speech]) -> list[str]:
    """A token is a word here."""
    if (document := drafted(_asked(messages))) is not None:
        return document.split(" ")
    before = f" Before that came {len(read) - 1} messages." if len(read) > 1 else ""
    results = [one.text for speech in _since(messages) for one in speech.results]
    said = f" The tools said: {' '.join(results)}" if results else ""
    return f"This is the offline model, which only repeats. You said: {read[-1]}{before}{said}".split(" ")


def _asked(messages: Sequence[Speech]) -> Parts:
    return next((one.parts for one in reversed(messages) if one.parts), ())


def _wanted(messages: Sequence[Speech], sampling: Sampling) -> list[Wanted]:
    asked = [words(one.parts) for one in messages if one.role == "user" and one.parts]
    script = _rounds(asked[-1] if asked else "") or _rounds(sampling.instructions or "")
    done = sum(bool(speech.calls) for speech in _since(messages))
    if not sampling.functions or done >= len(script):
        return []
    calls = [(_named(name, sampling.functions), given) for name, given in script[done]]
    return [Wanted(f"call-{done + 1}-{place}", name, given) for place, (name, given) in enumerate(calls, 1)]


def _since(messages: Sequence[Speech]) -> list[Speech]:
    """What came after the newest that was asked."""
    last = max((place for place, one in enumerate(messages) if one.role == "user" and one.parts), default=-1)
    return list(messages[last + 1 :])


def _rounds(text: str) -> list[list[tuple[str, Fields | None]]]:
    found: list[list[tuple[str, Fields | None]]] = []
    for word, name, given in _LINE.findall(text):
        if word == "use" or not found:
            found.append([])
        found[-1].append((name, input_of(given)))
    return found


def _named(name: str, functions: tuple[Function, ...]) -> str:
    """`server/tool` as well as the names that a model is told."""
    known = {one.name for one in functions}
    server, _, tool = name.rpartition("/")
    return next((one for one in (name, f"{server}__{tool}", tool) if one in known), name)
