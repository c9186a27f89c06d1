"""Agents that ask questions with choices and schemas, for the tests of every face."""

from dataclasses import dataclass
from typing import Literal

from parley import Done, NeedInput, Text, Turn, agent

FLIGHTS = ["AF 12", "BA 7"]


@dataclass
class Passenger:
    name: str
    age: int
    seat: Literal["aisle", "window"] = "aisle"
    luggage: bool = False
    weight: float | None = None


@agent("flights")
async def flights(turn: Turn):
    """Asks for a flight, then for the passenger."""
    if turn.number == 1:
        yield NeedInput("Which flight?", choices=FLIGHTS)
    elif turn.number == 2:
        yield Text(f"{turn.answer!r}. ")
        yield NeedInput("Passenger?", schema=Passenger)
    else:
        who = turn.answer_as(Passenger)
        yield Done(f"{who.name} is {who.age}, {who.seat}.")


@agent("plain")
async def plain(turn: Turn):
    """Asks anything, and says what it got."""
    if turn.number == 1:
        yield Done(f"Asked nothing: {turn.answer!r}") if turn.text == "nothing" else NeedInput("What?")
    else:
        yield Done(f"Heard {turn.answer!r}")


QUESTIONERS = (flights, plain)
