"""Questions that expect a certain answer, in a terminal: numbered choices, and a prompt for each value."""

import sys

import msgspec
from rich.console import Console
from rich.markup import escape

from parley.client import Json
from parley.json_values import Fields
from parley.json_values import Json as Value
from parley.runs.rules.answers import MEDIA_TYPE, AnswerField, AnswerForm, Expected, answer_form, entered


def expected_in(part: Json) -> Expected | None:
    """Return the expected answer that a part describes; None for any other part."""
    if part.get("mediaType") != MEDIA_TYPE:
        return None
    try:
        return msgspec.json.decode(msgspec.json.encode(part.get("data")), type=Expected)
    except (msgspec.MsgspecError, ValueError):
        return None


def expected_text(expects: Expected) -> str:
    """Return the lines that describe an expected answer."""
    form = answer_form(expects)
    if form.choices:
        lines = [f"{number}. {choice}" for number, choice in enumerate(form.choices, 1)]
    elif form.fields:
        lines = [_described(field) for field in form.fields]
    else:
        lines = ["JSON that matches this schema:", *form.schema.splitlines()]
    return "".join(f"\n  {printable(line)}" for line in lines)


def hint(expects: Expected | None) -> str:
    """Return an example of an answer, for a command line."""
    if expects is None:
        return "'your answer'"
    return "1" if expects.choices else "--data '{…}'"


def _described(field: AnswerField) -> str:
    kind = {"checkbox": "yes or no", "select": ", ".join(words for _, words in field.options)}.get(field.input)
    about = "; ".join(one for one in (kind or field.input, "" if field.required else "optional", field.hint) if one)
    return f"{field.name}: {about}"


def printable(text: str) -> str:
    """Replace control characters, so that an agent's text cannot control the terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)


def can_prompt() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def prompt(expects: Expected | None, console: Console) -> list[Json] | None:
    """Ask for an answer and return its parts; None if the user gave none."""
    form = answer_form(expects)
    try:
        return [{"data": _values(form, console)}] if form.fields else _line(form, console)
    except (EOFError, KeyboardInterrupt):
        console.print()
        return None


def _line(form: AnswerForm, console: Console) -> list[Json] | None:
    label = f"Your choice (1 to {len(form.choices)})" if form.choices else "Your answer"
    text = _asked(label, console)
    return [{"text": text}] if text else None


def _values(form: AnswerForm, console: Console) -> Fields:
    given = {field.name: _value(field, console) for field in form.fields}
    return {name: value for name, value in given.items() if value is not msgspec.UNSET}


def _value(field: AnswerField, console: Console) -> "Value | msgspec.UnsetType":
    options = [f"{number}. {words}" for number, (_, words) in enumerate(field.options, 1)]
    about = ["y/n"] if field.input == "checkbox" else options if field.required else [*options, "optional"]
    text = _asked(f"{field.label} ({', '.join(about)})" if about else field.label, console)
    if field.input == "checkbox":
        return text.lower() in ("y", "yes", "true", "1")
    return entered(field, _option(field, text))


def _option(field: AnswerField, text: str) -> str:
    """Return the option that was entered as it is shown, or by its number; else the text."""
    by_words = {words.casefold(): value for value, words in field.options}
    by_number = {str(number): value for number, (value, _) in enumerate(field.options, 1)}
    return by_words.get(text.casefold()) or by_number.get(text, text)


def _asked(label: str, console: Console) -> str:
    return console.input(f"[cyan]{escape(printable(label))}:[/cyan] ").strip()
