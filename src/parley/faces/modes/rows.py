"""What a mode brings with it: for each of its actions somebody who does it, and who tells afterwards what was done."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from parley.core.params import Params
from parley.core.runs import Run
from parley.engine.commands import Outcome
from parley.faces.modes.reading import Call

P = TypeVar("P", bound=Params)

Row = tuple[str, str]
"""A mode and an action: a row of the table."""


class Read(Struct, frozen=True):
    """What was asked without a run, and its answer."""

    result: object


Handler = Callable[[Call], Awaitable[Read | Outcome]]
Teller = Callable[[Run, bytes], Awaitable[object]]
"""The result of a run that has completed, from what it recorded (empty if nothing)."""


class Offer(Struct, frozen=True):
    """An action that is offered; one that makes no runs has nothing to tell later."""

    do: Handler
    tell: Teller | None = None


def of(call: Call, type_: type[P]) -> P:
    """A call's parameters, whose type its row has already made sure of."""
    assert isinstance(call.params, type_)
    return call.params
