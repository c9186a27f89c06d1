"""Language models."""

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from parley.core.artifacts import Parts
from parley.core.functions import Function, Returned, Wanted


class Speech(Struct, frozen=True):
    """One message of what a model reads."""

    role: Literal["user", "agent"]
    parts: Parts
    calls: tuple[Wanted, ...] = ()
    """What the agent wanted called then."""
    results: tuple[Returned, ...] = ()
    """What came of the calls of the speech before."""


class Sampling(Struct, frozen=True):
    """How a model is asked. None leaves it to the vendor."""

    instructions: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    model: str | None = None
    """Another model of the same vendor, for this once."""
    functions: tuple[Function, ...] = ()


class Delta(Struct, frozen=True):
    """The next words."""

    text: str


class Usage(Struct, frozen=True):
    """What the answer took so far, as the vendor counts; told again when it changes."""

    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None


class Finish(Struct, frozen=True):
    """The model has ended its answer. An answer without it was broken off."""

    reason: str


Answered = Delta | Wanted | Usage | Finish
"""What a model's answer is made of."""


class Llm(Protocol):
    """A language model. Raises ModelError: words for the one who asked, details for the operator."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The media types it can be given."""
        ...

    def stream(self, messages: Sequence[Speech], sampling: Sampling) -> AsyncGenerator[Answered, None]:
        """Answer. To close the generator is to end the vendor's request."""
        ...
