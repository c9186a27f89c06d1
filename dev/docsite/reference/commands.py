"""Every command and option of `parley` and `a2a-runtime`, from what reads them."""

import argparse
from collections.abc import Iterator
from typing import Any

import typer

from dev.docsite.reference.writing import code, table, whole
from parley.cli import app
from parley_edge.cli import command_line

_INTRODUCTION = """\
What the commands are for, with examples, is told in [the command line](../cli.md) and, for `a2a-runtime`, in
[agents behind NAT](../edge.md); this is every argument and option. `--help` says the same."""


def page() -> str:
    ours = [_command(path, command) for path, command in commands(typer.main.get_command(app))]
    theirs = [_edge_command(path, one) for path, one in _edge_commands(command_line(), ("a2a-runtime",))]
    return whole("Commands and options", _INTRODUCTION, "## `parley`", *ours, "## `a2a-runtime`", *theirs)


def commands(command: Any, path: tuple[str, ...] = ("parley",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The commands themselves, without the groups they are in."""
    children: dict[str, Any] = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from commands(child, (*path, name))


def _command(path: tuple[str, ...], command: Any) -> str:
    rows = [_parameter(one) for one in command.params if one.name != "help"]
    shown = [f"### `{' '.join(path)}`", (command.help or "").strip()]
    return "\n\n".join([*shown, *([table(("", "", "default"), rows)] if rows else [])])


def _parameter(one: Any) -> tuple[str, str, str]:
    if one.param_type_name == "argument":
        name = (one.metavar or one.name).upper().rstrip("_")
        return code(name if one.required else f"[{name}]"), one.help or "", ""
    named = ", ".join(code(option) for option in (*one.opts, *one.secondary_opts))
    variable = f" Also {code(str(one.envvar))}." if one.envvar else ""
    return named, f"{one.help or ''}{variable}", _default(one)


def _default(one: Any) -> str:
    if one.is_flag and one.secondary_opts:
        return code((one.opts if one.default else one.secondary_opts)[0])
    return "" if one.is_flag or one.default in (None, ()) else code(str(one.default))


def _edge_commands(
    parser: argparse.ArgumentParser, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield path, parser
    for group in groups:
        for name, child in group.choices.items():
            yield from _edge_commands(child, (*path, name))


def _edge_command(path: tuple[str, ...], parser: argparse.ArgumentParser) -> str:
    rows = [_edge_option(action) for action in parser._actions if action.dest != "help"]
    shown = [f"### `{' '.join(path)}`", parser.description or ""]
    return "\n\n".join([*shown, *([table(("", "", "default"), rows)] if rows else [])])


def _edge_option(action: argparse.Action) -> tuple[str, str, str]:
    named = ", ".join(code(option) for option in action.option_strings) or code(action.dest.upper())
    words = (action.help or "") % {**vars(action), "prog": "a2a-runtime"}
    choices = f" One of {', '.join(code(str(choice)) for choice in action.choices)}." if action.choices else ""
    default = "" if action.default in (None, False, argparse.SUPPRESS) else code(str(action.default))
    return named, words + choices, default
