"""Forms for the answers that questions expect: buttons for choices, fields for flat objects, text for all else."""

import msgspec
from msgspec import UNSET, Raw, Struct

from parley.errors import Invalid
from parley.json_schema import resolved
from parley.json_values import Fields, Json, fields_of, text_of
from parley.runs.rules.answers import Expected, schema_in
from parley.runs.rules.content import Part, Parts, text_part

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
            _data(
                {
                    one.name: value
                    for one in fields
                    if (value := entered(one, form.get(PREFIX + one.name, ""))) is not UNSET
                }
            ),
        )
    text = (form.get("choice") or form.get("text", "")).strip()
    return (text_part(text),) if text else ()


def _data(value: Fields) -> Part:
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
    label = text_of(about.get("title") or inner.get("title")) or name.replace("_", " ").capitalize()
    hint = text_of(about.get("description") or inner.get("description"))
    default = about.get("default")
    allowed = inner.get("enum", [inner["const"]] if "const" in inner else None)
    if isinstance(allowed, list):
        options = tuple((_json(one), one if isinstance(one, str) else _json(one)) for one in allowed)
        chosen = "" if default is None else _json(default)
        return AnswerField(name, label, hint, "select", required, chosen, options)
    kind = inner.get("type")
    if not isinstance(kind, str) or kind not in _INPUTS:
        return None
    form = _FORMATS.get(text_of(inner.get("format")), "text") if kind == "string" else _INPUTS[kind]
    value = default if isinstance(default, str) else "" if default in (None, False) else _json(default)
    return AnswerField(name, label, hint, form, required, value, limits=_limits(kind, inner))


def _limits(kind: str, schema: Fields) -> tuple[tuple[str, str], ...]:
    if kind == "string":
        names = {"minLength": "minlength", "maxLength": "maxlength"}
    else:
        names = {"minimum": "min", "maximum": "max", "multipleOf": "step"}
    step = (("step", "any"),) if kind == "number" and "multipleOf" not in schema else ()
    return (*((html, _json(schema[name])) for name, html in names.items() if name in schema), *step)


def _followed(root: Fields, schema: Fields) -> Fields:
    """Return the schema that a reference leads to. A chain of references ends after a few."""
    for _ in range(5):
        if "$ref" not in schema:
            break
        schema = fields_of(resolved(root, text_of(schema["$ref"])))
    return schema


def _without_null(schema: Fields) -> Fields:
    """Return the schema of an optional value without null."""
    forms = schema.get("anyOf")
    if not isinstance(forms, list):
        return schema
    others = [one for one in forms if fields_of(one).get("type") != "null"]
    return fields_of(others[0]) if len(others) == 1 else schema


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()
