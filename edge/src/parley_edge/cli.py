"""The command line. Commands import what they need when they run, so that each one starts fast."""

import argparse
import io
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from parley_edge import __version__
from parley_edge.errors import INTERRUPTED, OK, EdgeError, WrongUse
from parley_edge.system import printable

if TYPE_CHECKING:
    from parley_edge.program import Wrapped

Handler = Callable[[argparse.Namespace], int]

_EXIT_CODES = """exit codes:
  0  success; for start: stopped cleanly
  1  refused, failed, or already running
  2  wrong use: invalid options, or no matching profile
  3  the platform cannot be reached
  4  the platform does not accept the pairing code or the token
  5  the profile file is broken or cannot be written
  130  interrupted
"""

_EXPOSED: dict[str, Any] = {
    "dest": "exposed",
    "action": "store_true",
    "help": "required with a --host that other machines can reach: every client that reaches it can run the program",
}
_TASK = (
    "where the program gets the task as JSON: in the variable A2A_TASK (default), as its last argument, "
    "or on standard input instead of the text"
)
_COMMAND = "run this program for each task instead of calling an endpoint; not run in a shell"
_OUTPUT = "what the program writes: text, json (an object), or auto (an object if it is one, else text)"


def main(arguments: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Do not fail if the terminal cannot encode a character.
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
    """Print a note to standard error; standard output is for results."""
    print(printable(line), file=sys.stderr)


def _show(*lines: str) -> None:
    for line in lines:
        print(printable(line))


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "a2a-runtime",
        description="Connects an agent on this machine to its platform, also behind NAT: all requests are outgoing.",
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
    parser.add_argument("--profile", metavar="NAME", help="the profile; default: the active or only one")
    parser.add_argument("--api-base", metavar="URL", type=_base, help="the platform; default: as paired")
    _json_option(parser)


def _json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def _endpoint_options(parser: argparse.ArgumentParser) -> Any:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--endpoint", metavar="URL", type=_endpoint, help="the URL of the local agent")
    group.add_argument("--preset", choices=["openclaw"], help="the endpoint of a known local agent")
    return group


def _program_options(parser: argparse.ArgumentParser) -> None:
    """Options for the program that `--command` names."""
    parser.add_argument("--task", choices=["env", "argument", "stdin", "none"], default="env", help=_TASK)
    parser.add_argument("--output", choices=["auto", "text", "json"], default="auto", help=_OUTPUT)
    parser.add_argument("--cwd", metavar="FOLDER", help="the working directory of the program")


def _add_pair(commands: Any) -> None:
    parser = _command(commands, "pair", _pair, "Pair with a platform: use a one-time pairing code to create a profile.")
    parser.add_argument("--code", help="the pairing code; - reads standard input; default: prompt")
    parser.add_argument(
        "--api-base", metavar="URL", type=_base, help="the platform that issued the code; also A2A_API_BASE"
    )
    parser.add_argument("--name", help="the runtime's name on the platform; default: the machine's name")
    parser.add_argument("--profile", metavar="NAME", help="the profile to create or replace")
    _endpoint_options(parser)
    _json_option(parser)


def _add_start(commands: Any) -> None:
    parser = _command(
        commands, "start", _start, "Run until stopped: pull tasks, call the local agent, deliver results."
    )
    _profile_options(parser)
    _endpoint_options(parser).add_argument("--command", metavar="PROG", help=_COMMAND)
    _program_options(parser)
    parser.add_argument(
        "--concurrency", metavar="N", type=_count, default=1, help="maximum number of tasks at once; default: 1"
    )
    parser.add_argument(
        "--timeout", metavar="S", type=_seconds, default=600.0, help="maximum seconds for a local call; default: 600"
    )
    parser.add_argument(
        "--grace",
        metavar="S",
        type=_seconds,
        default=30.0,
        help="seconds to finish tasks after a stop signal; default: 30",
    )


def _add_status(commands: Any) -> None:
    _profile_options(_command(commands, "status", _status, "Show a profile and its state on the platform."))


def _add_profiles(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("profiles", help="List, select or remove profiles.")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _json_option(_command(actions, "list", _profiles_list, "List the profiles; a star marks the active one."))
    for name, handler, words in (
        ("use", _profiles_use, "Select the active profile."),
        ("remove", _profiles_remove, "Delete a profile and its token."),
    ):
        action = _command(actions, name, handler, words)
        action.add_argument("name", metavar="NAME")
        _json_option(action)


def _add_doctor(commands: Any) -> None:
    parser = _command(
        commands, "doctor", _doctor, "Check the profile, the platform, the token, the local agent and the clock."
    )
    _profile_options(parser)
    _endpoint_options(parser)


def _add_adapter(commands: Any) -> None:
    parser = _command(commands, "adapter", _adapter, "Serve any program as a local agent: one process per task.")
    parser.add_argument(
        "--command", metavar="PROG", required=True, help="the program and its arguments; not run in a shell"
    )
    parser.add_argument("--port", type=int, default=18789, help="the port; 0 picks a free one; default: 18789")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on; default: 127.0.0.1")
    parser.add_argument("--i-know-this-is-not-an-authentication-boundary", **_EXPOSED)
    _program_options(parser)
    parser.add_argument(
        "--timeout", metavar="S", type=_seconds, default=600.0, help="maximum seconds for a run; default: 600"
    )
    parser.add_argument(
        "--concurrency", metavar="N", type=_count, default=8, help="maximum number of programs at once; default: 8"
    )


def _base(value: str) -> str:
    from parley_edge.storage.profiles import checked_url

    return _url(value, "an API base", checked_url)


def _endpoint(value: str) -> str:
    from parley_edge.storage.profiles import checked_endpoint

    return _url(value, "an endpoint", checked_endpoint)


def _url(value: str, what: str, check: Callable[[str, str], str]) -> str:
    try:
        return check(value, what)
    except WrongUse as error:
        raise argparse.ArgumentTypeError(f"{error.message} {error.hint}".strip()) from None


def _count(value: str) -> int:
    if not value.isdigit() or not 1 <= int(value) <= 256:
        raise argparse.ArgumentTypeError("must be a number from 1 to 256")
    return int(value)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError("must be a number of seconds above 0, at most 86400")
    return seconds


def _endpoint_of(options: argparse.Namespace) -> str | None:
    from parley_edge.storage.profiles import PRESETS

    return PRESETS[options.preset] if options.preset else options.endpoint


def _pair(options: argparse.Namespace) -> int:
    from parley_edge.commands.pair import PairOrder, pair
    from parley_edge.commands.start import warnings

    order = PairOrder(options.code, options.api_base, options.name, options.profile, _endpoint_of(options))
    paired = pair(order, _say)
    profile = paired.profile
    if options.json:
        print(json.dumps({"profile": paired.name, "replaced": paired.replaced, **profile.shown()}))
        return OK
    _show(f"Paired with {profile.agent_name or profile.agent_id} ({profile.agent_id}) as profile '{paired.name}'.")
    _show(f"Tasks will be sent to {profile.local_agent_endpoint}.")
    for warning in warnings(profile.api_base, profile.local_agent_endpoint):
        _say(f"warning: {warning}")
    _show("Next: a2a-runtime start")
    return OK


def _start(options: argparse.Namespace) -> int:
    from parley_edge.commands.start import StartOrder, start

    times = {"timeout_s": options.timeout, "grace_s": options.grace}
    where = {"profile": options.profile, "api_base": options.api_base, "endpoint": _endpoint_of(options)}
    program = _wrapped(options) if options.command else None
    return start(StartOrder(**where, **times, concurrency=options.concurrency, as_json=options.json, program=program))


def _status(options: argparse.Namespace) -> int:
    from parley_edge.commands.status import status, status_lines

    said = status(options.profile, options.api_base)
    _show(*([json.dumps(said)] if options.json else status_lines(said)))
    return OK


def _profiles_list(options: argparse.Namespace) -> int:
    from parley_edge.commands.profiles import listed, listed_lines

    found = listed()
    _show(*([json.dumps({"profiles": found})] if options.json else listed_lines(found)))
    return OK


def _profiles_use(options: argparse.Namespace) -> int:
    from parley_edge.commands.profiles import use

    use(options.name)
    print(
        json.dumps({"active_profile": options.name}) if options.json else f"The active profile is now '{options.name}'."
    )
    return OK


def _profiles_remove(options: argparse.Namespace) -> int:
    from parley_edge.commands.profiles import remove

    remove(options.name)
    print(json.dumps({"removed": options.name}) if options.json else f"Removed '{options.name}' and its token.")
    return OK


def _doctor(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from parley_edge.commands.doctor import examine

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
