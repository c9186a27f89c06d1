"""Questions that expect a certain answer: one of some choices, or a value that matches a JSON Schema."""

import unicodedata
from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.errors import AnswerInvalid, Invalid
from parley.json_schema import Mismatch, check_schema, check_value
from parley.json_values import MAX_DEPTH, Fields, Json, fields_of, is_deeper, whole
from parley.runs.rules.content import Part, Parts, text_of

MEDIA_TYPE = "application/vnd.parley.expected-answer+json"
"""Media type of the part that describes the expected answer in an A2A message."""
MAX_CHOICES = 100
MAX_CHOICE = 500
"""Maximum number of characters of a choice."""
MAX_ANSWER = 32 * 1024
"""Maximum number of bytes of an answer that is checked. It is lower than the limit above which text is stored outside
the log, so that the agent reads the same answer without loading it."""


class Expected(Struct, frozen=True, omit_defaults=True):
    """The answer that a question expects: one of `choices`, or a value that matches `schema`."""

    choices: tuple[str, ...] = ()
    schema: Raw | UnsetType = UNSET


def expected(choices: Sequence[str] = (), schema: Fields | None = None) -> Expected | None:
    """Return the expected answer of a question; None if any answer will do. Raise Invalid if it cannot be checked."""
    if schema is not None:
        if choices:
            raise Invalid("A question has either choices or a schema, not both.", field="choices")
        check_schema(schema)
        return Expected(schema=Raw(msgspec.json.encode(schema)))
    return Expected(_checked(choices)) if choices else None


def _checked(choices: Sequence[str]) -> tuple[str, ...]:
    given = cast(Sequence[object], choices)
    if isinstance(choices, str) or not all(isinstance(one, str) and one.strip() for one in given):
        raise Invalid("The choices of a question must be a list of texts that are not empty.", field="choices")
    if len(choices) > MAX_CHOICES or any(len(one) > MAX_CHOICE for one in choices):
        raise Invalid(f"A question may have {MAX_CHOICES} choices of {MAX_CHOICE} characters each.", field="choices")
    if any(unicodedata.category(one) in ("Cc", "Cs") for one in "".join(choices)):
        raise Invalid("The choices of a question must not contain control characters.", field="choices")
    if len({_plain(one) for one in choices}) < len(choices):
        raise Invalid("Two choices of the question are equal.", field="choices")
    return tuple(choices)


def expected_part(wanted: Expected) -> Part:
    """Return the part that describes the expected answer to a client."""
    return Part(data=Raw(msgspec.json.encode(wanted)), media_type=MEDIA_TYPE)


def schema_in(wanted: Expected) -> Json:
    """Return the JSON Schema of the expected answer; null if it has none."""
    return None if wanted.schema is UNSET else msgspec.json.decode(wanted.schema)


def answer_in(wanted: Expected, parts: Parts) -> Json:
    """Return the answer that a message gives to a question: the choice, or the value. Raise AnswerInvalid if the answer
    is not an expected one."""
    _check_size(parts)
    return _chosen(wanted.choices, parts) if wanted.choices else _value(schema_in(wanted), parts)


def _check_size(parts: Parts) -> None:
    size = sum(len((part.text or "").encode()) + len(_data(part)) for part in parts)
    if size > MAX_ANSWER or any(part.blob is not None and part.blob.text for part in parts):
        raise _refused(f"an answer may have at most {MAX_ANSWER >> 10} KiB")


def _data(part: Part) -> bytes:
    return b"" if part.data is UNSET else bytes(part.data)


def _first_data(parts: Parts) -> bytes:
    return next((_data(part) for part in parts if part.data is not UNSET), b"")


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _chosen(choices: tuple[str, ...], parts: Parts) -> str:
    data = _decoded(_first_data(parts)) if _first_data(parts) else text_of(parts)
    given = fields_of(data).get("choice") if isinstance(data, dict) else data
    text = str(given) if whole(given) is not None else given if isinstance(given, str) else ""
    same = [one for one in choices if _plain(one) == _plain(text)]
    if same:
        return same[0]
    number = text.strip().rstrip(".")
    if number.isascii() and number.isdigit() and len(number) <= 3 and 1 <= int(number) <= len(choices):
        return choices[int(number) - 1]
    raise _refused(f"it must be one of: {_listed(choices)}")


def _listed(choices: tuple[str, ...]) -> str:
    shown = "; ".join(f"{number}. {one}" for number, one in enumerate(choices, 1))
    return shown if len(shown) <= 1000 else f"{shown[:1000]}…"


def _value(schema: Json, parts: Parts) -> Json:
    data = _first_data(parts)
    if data:
        return _matching(schema, _decoded(data))
    text = text_of(parts).strip()
    try:
        return _matching(schema, _decoded(text.encode()))
    except AnswerInvalid as error:
        # A question for a text can be answered without the quotes of JSON.
        try:
            return _matching(schema, text)
        except AnswerInvalid:
            raise error from None


def _matching(schema: Json, value: Json) -> Json:
    try:
        check_value(schema, value)
    except Mismatch as mismatch:
        where = mismatch.at.lstrip("/").replace("/", ".")
        raise _refused(f"{where or 'it'} {mismatch.reason}", mismatch.at) from None
    return value


def _decoded(body: bytes) -> Json:
    if is_deeper(body, MAX_DEPTH):
        raise _refused(f"it may be nested at most {MAX_DEPTH} levels deep")
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError):
        raise _refused("it must be a data part, or text that is JSON") from None


def _refused(reason: str, at: str = "") -> AnswerInvalid:
    where = {"at": at} if at else {}
    return AnswerInvalid(f"The answer does not fit the question: {reason}.", field="message.parts", **where)
