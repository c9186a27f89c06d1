"""The offline model: a stand-in for a language model that needs no key and no network. It says what it is, and gives
the same answer to the same input.

It calls tools on request: a line `use NAME {…}` in the message, or else in the instructions, is a round with this call.
A line `also NAME {…}` after it adds a call to the same round."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass

from parley.documents.rules import context_of, title_of
from parley.json_values import Fields
from parley.models.llm import TEXTS, Answered, Delta, Finish, Sampling, Speech, TokenUsage, input_of, words
from parley.orchestrations.rules.prompts import agents_offered
from parley.runs.rules.content import Parts, text_of
from parley.tools.rules.mcp import Function, WantedCall

# Plans and deliverables of the offline model: a fixed pattern, filled with the messages it was given.

_PLAN = """# {title}

## Goal

{asked}

## Steps

1. Find out what is known, and what is missing
2. Write a first version
3. Check it against the goal, and finish it

## Done when

- everything under Goal is there
- another person has read it

Written by the offline model, which fills in a pattern."""
_ITEM = re.compile(r"^[^\S\n]*+(?:\d++[.)]|[-*])[^\S\n]++([^\n]+)$", re.MULTILINE)
_STEPS = re.compile(r"^##\s+Steps\s*$(.*?)(?=^##\s|\Z)", re.MULTILINE | re.DOTALL)
_SAID = re.compile(r"\A(?:This is the (?:plan|current)[^\n]*|Version \d+):\n\n")
_CHANGES = "## Changes"


def drafted(parts: Parts) -> str | None:
    """Return the document that a message requests; None if it requests none."""
    shown = [(context_of(part), part.text or "") for part in parts]
    task = next((text for what, text in shown if what == "task"), None)
    if task is None:
        return None
    asked = text_of(part for part in parts if not context_of(part)).strip()
    if versions := [_behind(text) for what, text in shown if what == "version"]:
        return _changed(_united(versions), asked)
    current = {what: text for what, text in shown if what in ("plan", "deliverable")}
    if "plan alone" in task:
        return _changed(_behind(current["plan"]), asked) if "plan" in current else _plan(asked)
    if "deliverable" in current:
        return _changed(_behind(current["deliverable"]), asked)
    return _deliverable(_behind(current.get("plan", "")), asked)


def _plan(asked: str) -> str:
    return _PLAN.format(title=title_of("", asked), asked=asked)


def _deliverable(plan: str, asked: str) -> str:
    """Return a deliverable with one section for each step of the plan."""
    steps = _STEPS.search(plan)
    found = [item.rstrip() for item in _ITEM.findall(steps[1] if steps else plan)]
    sections = [f"## {step}\n\nAs planned." for step in found]
    return "\n\n".join([f"# {title_of(plan, asked)}", asked, *sections])


def _changed(content: str, asked: str) -> str:
    """Return the document with the requested change noted at its end."""
    head = content if _CHANGES in content else f"{content}\n\n{_CHANGES}\n"
    return f"{head}\n- {asked}"


def _united(versions: Iterable[str]) -> str:
    """Merge the versions: each distinct paragraph once, in order of first appearance."""
    return "\n\n".join(dict.fromkeys(block for one in versions for block in one.split("\n\n")))


def _behind(shown: str) -> str:
    """Return a document that was shown to the model, without its introductory line."""
    return _SAID.sub("", shown, count=1).strip()


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
        yield TokenUsage(sampling.model or NAME, counted, 0, sampling.temperature)
        if wanted := _wanted(messages, sampling):
            for one in wanted:
                yield one
            yield Finish("tool_calls")
            return
        agents = agents_offered(sampling.instructions or "")
        answer = (_offline_plan(read[-1], agents) if agents else _answer(read, messages))[: sampling.max_tokens]
        for place, word in enumerate(answer):
            yield Delta(f" {word}" if place else word)
            await asyncio.sleep(self.pause_s)
        yield TokenUsage(sampling.model or NAME, counted, len(answer), sampling.temperature)
        yield Finish("length" if len(answer) == sampling.max_tokens else "stop")


def _offline_plan(request: str, agents: list[str]) -> list[str]:
    """Return a plan that runs the agents named in the request one after another; the first agent if none is named."""
    named = [word.strip(".,:;!?`'\"") for word in request.lower().split()]
    chosen = list(dict.fromkeys(word for word in named if word in agents)) or agents[:1]
    steps = [{"id": one, "agent": one, "dependsOn": chosen[:place][-1:]} for place, one in enumerate(chosen)]
    return json.dumps({"steps": steps}).split(" ")


def _answer(read: list[str], messages: Sequence[Speech]) -> list[str]:
    """Return the answer as a list of words; for this model a word is a token."""
    if (document := drafted(_asked(messages))) is not None:
        return document.split(" ")
    before = f" Before that came {len(read) - 1} messages." if len(read) > 1 else ""
    results = [one.text for speech in _since(messages) for one in speech.results]
    said = f" The tools said: {' '.join(results)}" if results else ""
    return f"This is the offline model, which only repeats. You said: {read[-1]}{before}{said}".split(" ")


def _asked(messages: Sequence[Speech]) -> Parts:
    return next((one.parts for one in reversed(messages) if one.parts), ())


def _wanted(messages: Sequence[Speech], sampling: Sampling) -> list[WantedCall]:
    asked = [words(one.parts) for one in messages if one.role == "user" and one.parts]
    script = _rounds(asked[-1] if asked else "") or _rounds(sampling.instructions or "")
    done = sum(bool(speech.calls) for speech in _since(messages))
    if not sampling.functions or done >= len(script):
        return []
    calls = [(_named(name, sampling.functions), given) for name, given in script[done]]
    return [WantedCall(f"call-{done + 1}-{place}", name, given) for place, (name, given) in enumerate(calls, 1)]


def _since(messages: Sequence[Speech]) -> list[Speech]:
    """Return the messages after the user's latest message."""
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
    """Return the function's name for `NAME`, which may also be written `server/tool`."""
    known = {one.name for one in functions}
    server, _, tool = name.rpartition("/")
    return next((one for one in (name, f"{server}__{tool}", tool) if one in known), name)
