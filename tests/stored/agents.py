"""Agents of the stored database: one for each thing that a log can hold.

Some of them work until the file that PARLEY_STORED_OPEN names is there, so that a server can be killed meanwhile.
"""

import os
from pathlib import Path

from parley import ArtifactChunk, Done, Failed, NeedAuth, NeedInput, Note, Rejected, Status, Text, Turn, agent
from parley.testing.processes import until

OPEN = Path(os.environ.get("PARLEY_STORED_OPEN", "open"))


async def door() -> None:
    await until(OPEN.exists, 1e6)


@agent("echo", input_modes=("*/*",))
async def echo(turn: Turn):
    """Answers with text, data and a file, and completes."""
    yield Status("thinking")
    yield Text("You said ", metadata={"model": "none"})
    yield Text(turn.text[:100])
    yield ArtifactChunk({"said": turn.text[:100], "exact": 1.50}, id="data", name="Data", description="As data.")
    for number in range(2):
        yield ArtifactChunk(f"line {number}\n", id="lines", filename="lines.txt", append=number > 0, last=number == 1)
    yield Done("Done.", metadata={"about": "the words"}, task_metadata={"usage": {"tokens": 3}})


@agent("asker")
async def asker(turn: Turn):
    """Asks once, and ends with the answer."""
    if turn.number == 1:
        yield Note({"asked": "once", "about": turn.text})
        yield NeedInput("Which one?", metadata={"choices": ["a", "b"]}, task_metadata={"stage": "asking"})
        return
    yield Text(f"{turn.notes.get('about', 'nothing noted')}: {turn.text}")


@agent("vault")
async def vault(turn: Turn):
    """Wants to know who calls."""
    if turn.number == 1:
        yield NeedAuth("Who are you?", task_metadata={"scheme": "words"})
    else:
        yield Text(f"Welcome, {turn.text}.")


@agent("greeter", replies="message")
async def greeter(turn: Turn) -> str:
    """Answers with a message instead of a task."""
    return f"Hello, {turn.text}."


@agent("refuser")
async def refuser(turn: Turn):
    """Takes nothing."""
    yield Rejected("not_mine", "This is not for me.")


@agent("breaker")
async def breaker(turn: Turn):
    """Fails."""
    yield Text("Half of ")
    yield Failed("broken", "It broke.")


@agent("boss")
async def boss(turn: Turn):
    """Asks another agent."""
    answer = await turn.ask("echo", f"for the boss: {turn.text}")
    yield Done(f"It answered: {answer.text}")


@agent("files", input_modes=("*/*",))
async def files(turn: Turn):
    """Makes a file, and says a text, that are too large for a log."""
    yield ArtifactChunk(b"\x01" * 40_000, id="large", filename="large.bin", media_type="application/x-large")
    yield Done("word " * 14_000)


@agent("worker")
async def worker(turn: Turn):
    """Begins again when its process dies."""
    yield Status("at work")
    await door()
    if turn.text.endswith("fail"):
        yield Failed("broken", "It broke.")
    else:
        yield Text(f"done {turn.text}")


@agent("steady", rescue="resume")
async def steady(turn: Turn):
    """Goes on where it was when its process dies."""
    if not turn.marks:
        yield ArtifactChunk("first ", id="steps", last=False, mark="one")
        yield Status("between", mark="two")
    await door()
    yield ArtifactChunk(f"then, after {' and '.join(turn.marks)}", id="steps", append=True)


@agent("fragile", rescue="fail")
async def fragile(turn: Turn):
    """Fails when its process dies."""
    yield Status("careful")
    await door()


@agent("narrow", max_concurrent=1)
async def narrow(turn: Turn):
    """Works on one task at a time."""
    await door()
    yield Text(f"at last {turn.text}")


@agent("keeper")
async def keeper(turn: Turn):
    """Answers each input of an open run."""
    yield Text(f"kept {turn.text}")
