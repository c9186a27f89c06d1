"""A node whose agent does what it is told in a word: `python -m tests.node.member`, set up by the environment."""

from pathlib import Path

from parley import Done, NeedInput, Note, Status, Text, Turn, agent
from parley.drivers.function import FunctionDriver
from parley.node import Node
from parley.testing.processes import until


async def act(turn: Turn):
    word, _, rest = turn.text.partition(" ")
    if turn.answers:
        async for output in answered(turn):
            yield output
    elif word == "peers":
        yield Text(node.briefing)
    elif word == "trace":
        yield Text(turn.trace.traceparent)
    elif word == "colour":
        yield Text("A colour is needed. ")
        yield NeedInput("Which colour?")
    elif word == "gate":
        yield Status("waiting")
        await until(Path(rest).exists, 60)
        yield Text("The gate is open.")
    elif word == "describe":
        node.replace(described(rest))
        yield Done("described")
    elif word == "crash":
        raise RuntimeError(rest)
    else:
        async for output in delegated(turn, word, *rest.partition(" ")[::2]):
            yield output


async def delegated(turn: Turn, word: str, peer: str, rest: str):
    if word == "relay":
        yield Note({"peer": peer})
        turn = Onward(turn, rest)
        async for output in node.relay(turn, peer):
            yield output
    elif word == "ask":
        answer = await node.ask(peer, rest)
        if answer.status == "input-required":
            yield Note({"asked": peer, "task": answer.id})
            yield NeedInput(answer.message)
        yield Text(f"{answer.status}: {answer.text}")
    else:
        yield Text(turn.text)


async def answered(turn: Turn):
    if peer := turn.notes.get("peer"):
        async for output in node.relay(turn, peer):
            yield output
    elif peer := turn.notes.get("asked"):
        answer = await node.ask(peer, turn.text, task=turn.notes["task"])
        yield Text(f"{answer.status}: {answer.text}")
    else:
        yield Text(f"It is {turn.text}.")


class Onward:
    """A turn with other words."""

    def __init__(self, turn: Turn, text: str) -> None:
        self._turn = turn
        self.text = text

    def __getattr__(self, name: str):
        return getattr(self._turn, name)


def described(words: str) -> FunctionDriver:
    return agent("member", name="Member", description=words)(act)


node = Node(described("Does what it is told."))

if __name__ == "__main__":
    node.run()
