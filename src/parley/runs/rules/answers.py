"""Questions that expect a certain answer: one of some choices, or a value of a JSON Schema; and forms to enter it."""

import unicodedata
from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.errors import AnswerInvalid, Invalid
from parley.json_schema import Mismatch, check_schema, check_value, resolved
from parley.json_values import MAX_DEPTH, Fields, Json, fields_of, is_deeper, whole
from parley.json_values import text_of as text_in
from parley.runs.rules.content import Part, Parts, text_of, text_part

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


# Forms: buttons for choices, fields for flat objects, text for all else.

MAX_FIELDS = 50
"""Objects with more members are entered as JSON."""
PREFIX = "field."
"""Prefix of the names of fields in the form, which has names of its own."""
_INPUTS = {"string": "text", "number": "number", "integer": "number", "boolean": "checkbox"}
_FORMATS = {"date": "date", "email": "email", "uri": "url", "time": "time"}


class AnswerField(Struct, frozen=True):
    name: str
    label: str
    hint: str
    input: str
    """Type of the HTML input, or `select`."""
    required: bool
    value: str = ""
    options: tuple[tuple[str, str], ...] = ()
    """Values and labels of a select."""
    limits: tuple[tuple[str, str], ...] = ()
    """Attributes of the input that limit its value."""


class AnswerForm(Struct, frozen=True):
    """A form has choices, or fields, or a `schema` to write JSON by; a form with none of them takes any text."""

    choices: tuple[str, ...] = ()
    fields: tuple[AnswerField, ...] = ()
    schema: str = ""


def answer_form(wanted: Expected | None) -> AnswerForm:
    if wanted is None:
        return AnswerForm()
    if wanted.choices or wanted.schema is UNSET:
        return AnswerForm(wanted.choices)
    shown = msgspec.json.format(bytes(wanted.schema)).decode()
    return AnswerForm(fields=_fields(fields_of(schema_in(wanted))), schema=shown)


def answer_parts(form: dict[str, str], wanted: Expected | None) -> Parts:
    """Return the parts of the answer in a submitted form; none if it is empty. Raise Invalid if the form belongs to an
    earlier question."""
    if "fields" in form:
        fields = answer_form(wanted).fields
        if not fields:
            raise Invalid("The agent no longer waits for this answer. Reload the page.", field="fields")
        return (
            _data_part(
                {
                    one.name: value
                    for one in fields
                    if (value := entered(one, form.get(PREFIX + one.name, ""))) is not UNSET
                }
            ),
        )
    text = (form.get("choice") or form.get("text", "")).strip()
    return (text_part(text),) if text else ()


def _data_part(value: Fields) -> Part:
    return Part(data=Raw(msgspec.json.encode(value)))


def entered(field: AnswerField, text: str) -> "Json | msgspec.UnsetType":
    """Return the value of a field from the text that a user has entered; UNSET if it was left empty. A value of the
    wrong type stays text, so that the answer is refused with the reason."""
    if field.input == "checkbox":
        return bool(text)
    if not text and (not field.required or field.input in ("number", "select")):
        return UNSET
    return _number(text) if field.input in ("number", "select") else text


def _number(text: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError):
        return text


def _fields(root: Fields) -> tuple[AnswerField, ...]:
    """Return the fields of a flat object; none if the schema describes anything else."""
    schema = _followed(root, root)
    named, required = fields_of(schema.get("properties")), schema.get("required")
    needed = set(map(str, required)) if isinstance(required, list) else set[str]()
    if schema.get("type") != "object" or not needed <= set(named) or len(named) > MAX_FIELDS:
        return ()
    found = [_field(root, name, one, name in needed) for name, one in named.items()]
    return tuple(one for one in found if one is not None) if None not in found else ()


def _field(root: Fields, name: str, schema: Json, required: bool) -> AnswerField | None:
    """Return the field of a member; None if its value is not a simple one."""
    about = fields_of(schema)
    inner = _followed(root, _without_null(about))
    label = text_in(about.get("title") or inner.get("title")) or name.replace("_", " ").capitalize()
    hint = text_in(about.get("description") or inner.get("description"))
    default = about.get("default")
    allowed = inner.get("enum", [inner["const"]] if "const" in inner else None)
    if isinstance(allowed, list):
        options = tuple((_encoded(one), one if isinstance(one, str) else _encoded(one)) for one in allowed)
        chosen = "" if default is None else _encoded(default)
        return AnswerField(name, label, hint, "select", required, chosen, options)
    kind = inner.get("type")
    if not isinstance(kind, str) or kind not in _INPUTS:
        return None
    form = _FORMATS.get(text_in(inner.get("format")), "text") if kind == "string" else _INPUTS[kind]
    value = default if isinstance(default, str) else "" if default in (None, False) else _encoded(default)
    return AnswerField(name, label, hint, form, required, value, limits=_limits(kind, inner))


def _limits(kind: str, schema: Fields) -> tuple[tuple[str, str], ...]:
    if kind == "string":
        names = {"minLength": "minlength", "maxLength": "maxlength"}
    else:
        names = {"minimum": "min", "maximum": "max", "multipleOf": "step"}
    step = (("step", "any"),) if kind == "number" and "multipleOf" not in schema else ()
    return (*((html, _encoded(schema[name])) for name, html in names.items() if name in schema), *step)


def _followed(root: Fields, schema: Fields) -> Fields:
    """Return the schema that a reference leads to. A chain of references ends after a few."""
    for _ in range(5):
        if "$ref" not in schema:
            break
        schema = fields_of(resolved(root, text_in(schema["$ref"])))
    return schema


def _without_null(schema: Fields) -> Fields:
    """Return the schema of an optional value without null."""
    forms = schema.get("anyOf")
    if not isinstance(forms, list):
        return schema
    others = [one for one in forms if fields_of(one).get("type") != "null"]
    return fields_of(others[0]) if len(others) == 1 else schema


def _encoded(value: Json) -> str:
    return msgspec.json.encode(value).decode()
