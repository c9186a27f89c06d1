"""Tools as a language model sees them: functions that it may want called, and what came of them."""

from msgspec import Raw, Struct

from parley.core.canonical import Fields


class Function(Struct, frozen=True):
    """What a model may call."""

    name: str
    description: str
    schema: Raw
    """JSON Schema of its input."""


class Wanted(Struct, frozen=True):
    """A call that a model wants. `input` is None when what it wrote is no object of JSON."""

    id: str
    """The vendor's, by which it knows the answer."""
    name: str
    input: Fields | None


class Returned(Struct, frozen=True):
    """What came of a call, for the model."""

    id: str
    text: str
    failed: bool = False
