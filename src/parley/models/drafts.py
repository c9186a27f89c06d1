"""Plans and deliverables by the offline model: a fixed pattern, filled with what it was shown and asked."""

import re
from collections.abc import Iterable

from parley.core.artifacts import Parts, text_of
from parley.core.documents import title_of
from parley.core.drafting import context_of

_PLAN = """# {title}

## Goal

{asked}

## Steps

1. Find out what is known, and what is missing
2. Write a first version
3. Check it against the goal, and finish it

## Done when

- everything under Goal is there
- somebody else has read it

Written by the offline model, which fills in a pattern."""
_ITEM = re.compile(r"^[^\S\n]*+(?:\d++[.)]|[-*])[^\S\n]++([^\n]+)$", re.MULTILINE)
_STEPS = re.compile(r"^##\s+Steps\s*$(.*?)(?=^##\s|\Z)", re.MULTILINE | re.DOTALL)
_SAID = re.compile(r"\A(?:This is the (?:plan|current)[^\n]*|Version \d+):\n\n")
_CHANGES = "## Changes"


def drafted(parts: Parts) -> str | None:
    """The document that a message asks for; None when it asks for none."""
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
    """A section for each step of the plan."""
    steps = _STEPS.search(plan)
    found = [item.rstrip() for item in _ITEM.findall(steps[1] if steps else plan)]
    sections = [f"## {step}\n\nAs planned." for step in found]
    return "\n\n".join([f"# {title_of(plan, asked)}", asked, *sections])


def _changed(content: str, asked: str) -> str:
    """The same, and what was asked to change noted at its end."""
    head = content if _CHANGES in content else f"{content}\n\n{_CHANGES}\n"
    return f"{head}\n- {asked}"


def _united(versions: Iterable[str]) -> str:
    """The paragraphs of all of them, each once, in the order in which they first come."""
    return "\n\n".join(dict.fromkeys(block for one in versions for block in one.split("\n\n")))


def _behind(shown: str) -> str:
    """What is shown to a model, without the line that says what it is."""
    return _SAID.sub("", shown, count=1).strip()
