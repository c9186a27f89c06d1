"""The command line. Commands import what they need when they run, so that nothing waits for the others."""

import argparse
import io
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from parley_edge import __version__
from parley_edge.errors import INTERRUPTED, OK, EdgeError, WrongUse
from parley_edge.words import printable

if TYPE_CHECKING:
    from parley_edge.program import Wrapped

Handler = Callable[[argparse.Namespace], int]

_EXIT_CODES = """exit codes:
  0  done; for start: stopped in good order
  1  refused, failed, or already running
  2  wrong use: options, or no profile that could be meant
  3  the platform cannot be reached
  4  the pairing code or the token is not accepted
  5  the profile file is broken or cannot be written
  130  interrupted
"""

_EXPOSED: dict[str, Any] = {
    "dest": "exposed",
    "action": "store_true",
    "help": "needed with a --host that others can reach: whoever reaches it runs the program",
}
_TASK = (
    "where the program finds the task as JSON: in A2A_TASK (if left out), as its last argument, "
    "or on standard input instead of the text"
)
_COMMAND = "do the work with this program, one process for each task, instead of asking an endpoint; no shell"
_OUTPUT = "what it writes: a JSON object or else text (auto), or only the one or the other"


def main(arguments: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal cannot spell is no reason to fail.
            stream.reconfigure(errors="replace")
    options = command_line().parse_args(arguments)
    handler: Handler = options.handler
    try:
        return handler(options)
    except EdgeError as error:
        return _complain(error, as_json=getattr(options, "json", False))
    except KeyboardInterrupt:
        return INTERRUPTED


def _complain(error: EdgeError, *, as_json: bool) -> int:
    if as_json:
        _say(json.dumps({"error": {"code": error.code, "message": error.message, "hint": error.hint}}))
    else:
        _say(f"a2a-runtime: {error.message}")
        if error.hint:
            _say(f"  {error.hint}")
    return error.exit_code


def _say(line: str) -> None:
    """To whoever started it; standard output is for what was asked for."""
    print(printable(line), file=sys.stderr)


def _show(*lines: str) -> None:
    for line in lines:
        print(printable(line))


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "a2a-runtime",
        description="Connects an agent on this machine to its platform, from behind NAT: it only ever asks.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"a2a-runtime {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (_add_pair, _add_start, _add_status, _add_profiles, _add_doctor, _add_adapter):
        add(commands)
    return parser


def _command(commands: Any, name: str, handler: Handler, words: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=words, description=words)
    parser.set_defaults(handler=handler)
    return parser


def _profile_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", metavar="NAME", help="which profile; the active one, or the only one, if left out")
    parser.add_argument("--api-base", metavar="URL", type=_base, help="the platform; as paired if left out")
    _json_option(parser)


def _json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="output for programs")


def _endpoint_options(parser: argparse.ArgumentParser) -> Any:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--endpoint", metavar="URL", type=_endpoint, help="where the local agent is asked")
    group.add_argument("--preset", choices=["openclaw"], help="the endpoint of a known local agent")
    return group


def _program_options(parser: argparse.ArgumentParser) -> None:
    """How a program that `--command` names is run."""
    parser.add_argument("--task", choices=["env", "argument", "stdin", "none"], default="env", help=_TASK)
    parser.add_argument("--output", choices=["auto", "text", "json"], default="auto", help=_OUTPUT)
    parser.add_argument("--cwd", metavar="FOLDER", help="where the program runs")


def _add_pair(commands: Any) -> None:
    parser = _command(commands, "pair", _pair, "Turn a one-time pairing code into a profile.")
    parser.add_argument("--code", help="the pairing code; asked for if left out, - reads it from standard input")
    parser.add_argument("--api-base", metavar="URL", type=_base, help="the platform that issued it; also A2A_API_BASE")
    parser.add_argument("--name", help="what the platform shall call this runtime; the machine's name if left out")
    parser.add_argument("--profile", metavar="NAME", help="the profile to make or replace")
    _endpoint_options(parser)
    _json_option(parser)


def _add_start(commands: Any) -> None:
    parser = _command(commands, "start", _start, "Work until stopped: pull tasks, ask the local agent, deliver.")
    _profile_options(parser)
    _endpoint_options(parser).add_argument("--command", metavar="PROG", help=_COMMAND)
    _program_options(parser)
    parser.add_argument("--concurrency", metavar="N", type=_count, default=1, help="tasks at once; 1 if left out")
    parser.add_argument(
        "--timeout", metavar="S", type=_seconds, default=600.0, help="longest local call in seconds; 600 if left out"
    )
    parser.add_argument(
        "--grace", metavar="S", type=_seconds, default=30.0, help="time to finish when stopped; 30 if left out"
    )


def _add_status(commands: Any) -> None:
    _profile_options(_command(commands, "status", _status, "Show a profile and what the platform says of it."))


def _add_profiles(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("profiles", help="List, choose or remove profiles.")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _json_option(_command(actions, "list", _profiles_list, "List the profiles; the active one has a star."))
    for name, handler, words in (
        ("use", _profiles_use, "Make a profile the active one."),
        ("remove", _profiles_remove, "Forget a profile and its token."),
    ):
        action = _command(actions, name, handler, words)
        action.add_argument("name", metavar="NAME")
        _json_option(action)


def _add_doctor(commands: Any) -> None:
    parser = _command(
        commands, "doctor", _doctor, "Check the profile, the platform, the token, the local agent, the clock."
    )
    _profile_options(parser)
    _endpoint_options(parser)


def _add_adapter(commands: Any) -> None:
    parser = _command(commands, "adapter", _adapter, "Make any program a local agent: one process for each task.")
    parser.add_argument("--command", metavar="PROG", required=True, help="the program and its arguments; no shell")
    parser.add_argument("--port", type=int, default=18789, help="18789 if left out; 0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on; 127.0.0.1 if left out")
    parser.add_argument("--i-know-this-is-not-an-authentication-boundary", **_EXPOSED)
    _program_options(parser)
    parser.add_argument("--timeout", metavar="S", type=_seconds, default=600.0, help="longest run; 600 if left out")
    parser.add_argument("--concurrency", metavar="N", type=_count, default=8, help="programs at once; 8 if left out")


def _base(value: str) -> str:
    from parley_edge.profiles import checked_url

    return _url(value, "an API base", checked_url)


def _endpoint(value: str) -> str:
    from parley_edge.profiles import checked_endpoint

    return _url(value, "an endpoint", checked_endpoint)


def _url(value: str, what: str, check: Callable[[str, str], str]) -> str:
    try:
        return check(value, what)
    except WrongUse as error:
        raise argparse.ArgumentTypeError(f"{error.message} {error.hint}".strip()) from None


def _count(value: str) -> int:
    if not value.isdigit() or not 1 <= int(value) <= 256:
        raise argparse.ArgumentTypeError("a number from 1 to 256")
    return int(value)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError("seconds, more than 0, at most 86400")
    return seconds


def _endpoint_of(options: argparse.Namespace) -> str | None:
    from parley_edge.profiles import PRESETS

    return PRESETS[options.preset] if options.preset else options.endpoint


def _pair(options: argparse.Namespace) -> int:
    from parley_edge.pair import Order, pair
    from parley_edge.start import warnings

    order = Order(options.code, options.api_base, options.name, options.profile, _endpoint_of(options))
    paired = pair(order, _say)
    profile = paired.profile
    if options.json:
        print(json.dumps({"profile": paired.name, "replaced": paired.replaced, **profile.shown()}))
        return OK
    _show(f"Paired with {profile.agent_name or profile.agent_id} ({profile.agent_id}) as profile '{paired.name}'.")
    _show(f"Tasks will be sent to {profile.local_agent_endpoint}.")
    for warning in warnings(profile.api_base, profile.local_agent_endpoint):
        _say(f"warning: {warning}")
    _show("Go on with: a2a-runtime start")
    return OK


def _start(options: argparse.Namespace) -> int:
    from parley_edge.start import Order, start

    times = {"timeout_s": options.timeout, "grace_s": options.grace}
    where = {"profile": options.profile, "api_base": options.api_base, "endpoint": _endpoint_of(options)}
    program = _wrapped(options) if options.command else None
    return start(Order(**where, **times, concurrency=options.concurrency, as_json=options.json, program=program))


def _status(options: argparse.Namespace) -> int:
    from parley_edge.status import status, status_lines

    said = status(options.profile, options.api_base)
    _show(*([json.dumps(said)] if options.json else status_lines(said)))
    return OK


def _profiles_list(options: argparse.Namespace) -> int:
    from parley_edge.show import listed, listed_lines

    found = listed()
    _show(*([json.dumps({"profiles": found})] if options.json else listed_lines(found)))
    return OK


def _profiles_use(options: argparse.Namespace) -> int:
    from parley_edge.show import use

    use(options.name)
    print(json.dumps({"active_profile": options.name}) if options.json else f"'{options.name}' is the active profile.")
    return OK


def _profiles_remove(options: argparse.Namespace) -> int:
    from parley_edge.show import remove

    remove(options.name)
    print(json.dumps({"removed": options.name}) if options.json else f"'{options.name}' is removed, with its token.")
    return OK


def _doctor(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from parley_edge.doctor import examine

    checks, exit_code = examine(options.profile, options.api_base, _endpoint_of(options))
    if options.json:
        print(json.dumps({"checks": [asdict(check) for check in checks]}))
        return exit_code
    for check in checks:
        _show(f"{check.state:<8} {check.name}: {check.what}")
        if check.hint:
            _show(f"{'':<9}{check.hint}")
    return exit_code


def _adapter(options: argparse.Namespace) -> int:
    from parley_edge.program import run

    return run(_wrapped(options), options.host, options.port, exposed=options.exposed)


def _wrapped(options: argparse.Namespace) -> "Wrapped":
    from parley_edge.program import Wrapped

    return Wrapped.of(options.command, options.task, options.output, options.cwd, options.timeout, options.concurrency)
