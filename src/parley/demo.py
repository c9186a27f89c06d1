"""Demo agents. They need no model and no API key."""

import asyncio

from parley import ArtifactChunk, Done, NeedInput, Skill, Status, Text, Turn, agent
from parley.drivers.llm.driver import LlmDriver
from parley.models.llm import Sampling
from parley.models.offline import NAME, OfflineModel
from parley.runs.rules.agents import Agent

_WORDS_PAUSE_S = 0.05


@agent("echo", skills=[Skill("echo", "Echo", "Repeats your message.", ("demo",), ("hello",))])
async def echo(turn: Turn):
    """Repeats your message."""
    yield Text(turn.text)


@agent(
    "writer",
    skills=[
        Skill(
            "postcard",
            "Write a postcard",
            "Streams a postcard about a place, asks for the recipient, and returns the postcard as a file.",
            ("demo", "streaming", "input-required", "artifact"),
            ("Lisbon",),
        )
    ],
)
async def writer(turn: Turn):
    """Writes a postcard: streams it word by word, asks for the recipient, returns a Markdown file."""
    place = turn.history[0].parts[0].text or "somewhere"
    if turn.number == 1:
        yield Status(f"Looking at {place}")
        for word in f"Greetings from {place}! The light is soft, the trams are late, all is well.".split():
            yield Text(word + " ")
            await asyncio.sleep(_WORDS_PAUSE_S)
        yield NeedInput("Who is the postcard for?")
        return
    draft = next(part.text or "" for artifact in turn.artifacts for part in artifact.parts)
    card = f"# Postcard\n\nDear {turn.text},\n\n{draft.strip()}\n"
    yield ArtifactChunk(card, id="postcard", filename="postcard.md", media_type="text/markdown")
    yield Done(f"The postcard to {turn.text} is ready.")


@agent("relay", skills=[Skill("relay", "Relay", "Asks the echo agent and passes its answer on.", ("demo",))])
async def relay(turn: Turn):
    """Asks another agent. The run of that agent is a child of this run, and is canceled with it."""
    answer = await turn.ask("echo", turn.text)
    yield Text(f"echo said: {answer.text}")


chat = LlmDriver(
    Agent(
        "chat",
        "Chat",
        "Shows how a language model answers, with the offline model, which only repeats. "
        "Define an agent `chat` with a model of your own in its place.",
        skills=(Skill("chat", "Chat", "Streams an answer, and remembers the conversation.", ("demo", "llm"), ("hi",)),),
        model=NAME,
        input_modes=OfflineModel().reads,
    ),
    OfflineModel(),
    Sampling(),
)

AGENTS = (echo, writer, relay, chat)
