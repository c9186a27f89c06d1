"""Agents for clients that others wrote: every state and every kind of part that a client has to understand."""

import asyncio

from parley import ArtifactChunk, Done, Skill, Status, Turn, agent
from parley.runs.rules.agents import Extended
from tests.faces.conftest import AGENTS as PLAIN

SILENCE_S = 6.0
"""Longer than the five seconds after which the Python clients give up."""
MEMBERS = Extended(skills=(Skill("more", "More", "Told only to those who ask for it.", ("members",)),))


@agent("quiet")
async def quiet(turn: Turn):
    """Says nothing for longer than clients like to wait."""
    yield Status("listening")
    await asyncio.sleep(SILENCE_S)
    yield Done("Still here.")


@agent("member", extended=MEMBERS)
async def member(turn: Turn):
    """Has an extended card."""
    yield Done("Welcome.")


@agent("austere", streaming=False, push=False)
async def austere(turn: Turn):
    """Neither streams nor pushes."""
    yield ArtifactChunk(turn.text, id="same")


AGENTS = (*PLAIN, quiet, member, austere)
