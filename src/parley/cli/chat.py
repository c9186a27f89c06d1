"""Send, follow, cancel and fork tasks from the terminal."""

import asyncio
import json
import mimetypes
import sys
from base64 import b64encode
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from parley.cli.addresses import AgentAddress, ResolvedAddress, member, resolve, state_of
from parley.cli.options import DEFAULT_URL, INTERRUPTED, NOT_COMPLETED, OK, WAITS
from parley.cli.questions import can_prompt, expected_in, expected_text, hint, prompt
from parley.client import UNSUPPORTED, Content, Json, RemoteError
from parley.errors import ConfigurationError, Unsupported
from parley.runs.rules.answers import Expected

_COLOURS = {
    "COMPLETED": "green",
    "FAILED": "red",
    "REJECTED": "red",
    "CANCELED": "yellow",
    "INPUT_REQUIRED": "cyan",
    "AUTH_REQUIRED": "cyan",
}

ANSWER_INVALID = "ANSWER_INVALID"
"""Reason of the error for an answer that does not fit the question."""
_ENDED = ("COMPLETED", "FAILED", "REJECTED", "CANCELED")


def run_send(
    place: AgentAddress,
    content: Content,
    *,
    task: str | None = None,
    context: str | None = None,
    stream: bool = True,
    wait: bool = True,
    as_json: bool = False,
) -> int:
    with Printer(place, as_json, prompts=wait and not as_json and can_prompt()) as printer:
        code = _interruptible(_send(place, content, task, context, stream, wait, printer), printer)
        return _prompted(place, printer, code)


def run_answer(place: AgentAddress, task: str) -> int:
    """Show the question of a task, and ask for the answer."""
    with Printer(place, as_json=False, prompts=True, any_question=True) as printer:
        return _prompted(place, printer, _interruptible(_show_question(place, task, printer), printer))


def run_tail(place: AgentAddress, task: str, after: int | None, *, as_json: bool) -> int:
    with Printer(place, as_json, numbered=True) as printer:
        return _interruptible(_tail(place, task, after, printer), printer)


def run_cancel(place: AgentAddress, task: str, reason: str | None, *, as_json: bool) -> int:
    return asyncio.run(_cancel(place, task, reason, as_json))


def run_fork(
    place: AgentAddress, task: str, at: int | None, content: Content | None, *, wait: bool, as_json: bool
) -> int:
    with Printer(place, as_json) as printer:
        return _interruptible(_fork(place, task, at, content, wait, as_json, printer), printer)


def _interruptible(work: Coroutine[Any, Any, int], printer: "Printer") -> int:
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        printer.interrupted()
        return INTERRUPTED


def _prompted(place: AgentAddress, printer: "Printer", code: int) -> int:
    """Ask for answers as long as the agent expects certain ones and the user gives them. An answer that is refused is
    asked for again."""
    while printer.asks:
        answer = printer.prompt()
        if answer is None:
            return printer.finish()
        try:
            code = _interruptible(_send(place, answer, printer.task, None, True, True, printer), printer)
        except RemoteError as error:
            if error.reason != ANSWER_INVALID:
                raise
            printer.refused(error.message)
    return code


async def _show_question(place: AgentAddress, task: str, printer: "Printer") -> int:
    async with (await resolve(place)).client() as client:
        found = await client.get(task)
    if not state_of(found).endswith("required"):
        raise ConfigurationError(f"The task is {state_of(found)}; it does not wait for an answer.")
    printer.show({"task": {**found, "artifacts": []}})
    return printer.finish()


async def _send(
    place: AgentAddress,
    content: Content,
    task: str | None,
    context: str | None,
    stream: bool,
    wait: bool,
    printer: "Printer",
) -> int:
    begun = False
    async with (await resolve(place)).client(printer.retrying) as client:
        if stream and wait:
            try:
                async for result in client.stream(content, task=task, context=context):
                    begun = True
                    printer.show(result)
                return printer.finish()
            except RemoteError as error:
                # Refused before anything started, so it is safe to send again without streaming.
                if begun or not _does_not_stream(error):
                    raise
        configuration = None if wait else {"returnImmediately": True}
        answer = await client.send(content, task=task, context=context, configuration=configuration)
        printer.show(answer.result)
    return printer.finish(waited=wait)


async def _tail(place: AgentAddress, task: str, after: int | None, printer: "Printer") -> int:
    await _follow(await resolve(place), task, after, printer)
    return printer.finish()


async def _cancel(place: AgentAddress, task: str, reason: str | None, as_json: bool) -> int:
    async with (await resolve(place)).client() as client:
        found = await client.cancel(task, reason)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        state = state_of(found)
        print(state if state == "canceled" else f"canceling (still {state})")
    return OK


async def _fork(
    place: AgentAddress,
    task: str,
    at: int | None,
    content: Content | None,
    wait: bool,
    as_json: bool,
    printer: "Printer",
) -> int:
    resolved = await resolve(place)
    if not resolved.ours:
        raise Unsupported("Only a Parley server can fork a task, and this server's card does not say that it is one.")
    async with resolved.client() as client:
        fork = await client.fork(task, at, content)
    printer.show({"task": {**fork, "artifacts": []}} if not as_json else {"task": fork})
    made_at = next((one["at"] for one in map(member, member(fork.get("metadata")).values()) if "at" in one), None)
    if wait:
        await _follow(resolved, fork["id"], made_at, printer, settled=True)
    return printer.finish(waited=wait)


async def _follow(
    resolved: ResolvedAddress, task: str, after: int | None, printer: "Printer", *, settled: bool = False
) -> None:
    async with resolved.client(printer.retrying) as client, aclosing(client.tail(task, after)) as steps:
        async for seq, result in steps:
            printer.show(result, seq)
            if settled and printer.waits:
                return


def _does_not_stream(error: RemoteError) -> bool:
    return error.rpc == UNSUPPORTED and "stream" in error.message.lower()


class Printer:
    """Prints a task's text to standard output as it arrives, and states and hints to standard error. On a terminal, a
    spinner runs while nothing arrives."""

    def __init__(
        self,
        place: AgentAddress,
        as_json: bool,
        *,
        numbered: bool = False,
        prompts: bool = False,
        any_question: bool = False,
    ) -> None:
        """`prompts`: ask for the answers to questions that expect certain ones, with `any_question` to all."""
        self._place = place
        self._as_json = as_json
        self._numbered = numbered
        self._notes = Console(stderr=True, highlight=False)
        self._spinner: Status | None = None
        self._mid_line = False
        self._shown = ""
        """The artifact shown last: another artifact starts on a new line."""
        self.task = ""
        self._state = ""
        self._expects: Expected | None = None
        self._prompts = prompts
        self._any_question = any_question

    def __enter__(self) -> "Printer":
        self._start_spinner()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_spinner()

    @property
    def waits(self) -> bool:
        return self._state.endswith("REQUIRED")

    @property
    def asks(self) -> bool:
        """True if the user is to be asked for an answer."""
        return self._prompts and self.waits and (self._any_question or self._expects is not None)

    def prompt(self) -> list[Json] | None:
        """Ask for an answer; None if the user gives none."""
        answer = prompt(self._expects, self._notes)
        self._prompts = answer is not None
        return answer

    def refused(self, reason: str) -> None:
        self._stop_spinner()
        self._note(f"[red]{escape(reason)}[/red]")

    def show(self, result: Json, seq: int = 0) -> None:
        self._stop_spinner()
        number = {"seq": seq} if self._numbered and seq else {}
        if self._as_json:
            print(json.dumps({**number, **result}, ensure_ascii=False), flush=True)
        if task := result.get("task"):
            self._show_status(task["id"], task["status"], seq)
            for artifact in task.get("artifacts", []):
                self._show_artifact(artifact)
        elif update := result.get("statusUpdate"):
            self._show_status(update["taskId"], update["status"], seq)
        elif update := result.get("artifactUpdate"):
            self._show_artifact(update["artifact"])
        elif message := result.get("message"):
            self._state = "COMPLETED"
            self._print_text(text_of(message))
        self._start_spinner()

    def finish(self, *, waited: bool = True) -> int:
        self._stop_spinner()
        if not self._as_json and not self.asks:
            self._end_line()
            colour = _COLOURS.get(self._state, "white")
            self._note(f"[{colour}]{self._state.lower()}[/{colour}] [dim]{escape(self.task)}[/dim]")
            back = self._place.options(DEFAULT_URL)
            if self.waits:
                self._note(f"[dim]Answer: parley answer {self.task} {hint(self._expects)}{escape(back)}[/dim]")
            elif not waited and self._state in ("SUBMITTED", "WORKING"):
                self._note(f"[dim]Follow: parley tail {self.task}{escape(back)}[/dim]")
        if self.waits:
            return WAITS
        if not waited and self._state in ("SUBMITTED", "WORKING"):
            return OK
        return OK if self._state == "COMPLETED" else NOT_COMPLETED

    def retrying(self, reason: str, pause_s: float) -> None:
        """Print that the connection is retried."""
        self._stop_spinner()
        self._end_line()
        self._note(f"[yellow]{escape(reason)}[/yellow] [dim]retrying in {pause_s:g} s[/dim]")
        self._start_spinner()

    def interrupted(self) -> None:
        """Print that the task continues on the server without this command."""
        self._stop_spinner()
        self._end_line()
        if not self.task:
            self._note("Interrupted before the server answered.")
        elif self._state not in _ENDED:
            back = escape(self._place.options(DEFAULT_URL))
            self._note(f"Interrupted. The task continues on the server: {escape(self.task)}")
            self._note(f"[dim]Follow: parley tail {self.task}{back}[/dim]")
            self._note(f"[dim]Cancel: parley cancel {self.task}{back}[/dim]")

    def _show_status(self, task: str, status: Json, seq: int) -> None:
        self.task, self._state = task, str(status["state"]).removeprefix("TASK_STATE_")
        described = map(expected_in, member(status.get("message")).get("parts", []))
        self._expects = next((one for one in described if one is not None), None)
        if self._as_json or ("message" not in status and not (self._numbered and seq)):
            return
        self._end_line()
        number = f"[dim]{seq:>5} [/dim]" if self._numbered and seq else ""
        words = f" {escape(text_of(status['message']))}" if "message" in status else ""
        self._note(f"{number}[dim]{self._state.lower()}{':' if words else ''}[/dim]{words}")

    def _show_artifact(self, artifact: Json) -> None:
        if artifact["artifactId"] != self._shown:
            self._end_line()
        self._shown = str(artifact["artifactId"])
        for part in artifact["parts"]:
            name = part.get("filename")
            if name and not self._as_json:
                self._end_line()
                self._note(f"[dim]file {escape(str(name))}:[/dim]")
        self._print_text(text_of(artifact))

    def _print_text(self, text: str) -> None:
        if text and not self._as_json:
            print(text, end="", flush=True)
            self._mid_line = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._mid_line:
            print(flush=True)
            self._mid_line = False

    def _note(self, markup: str) -> None:
        self._notes.print(markup, soft_wrap=True)

    def _start_spinner(self) -> None:
        """Start the spinner, unless the cursor is inside a line: the spinner would overwrite it."""
        busy = self._state in ("", "SUBMITTED", "WORKING")
        if self._as_json or self._mid_line or not busy or not self._notes.is_terminal:
            return
        self._spinner = self._notes.status(f"[dim]{self._state.lower() or 'waiting'}[/dim]")
        self._spinner.start()

    def _stop_spinner(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None


def text_of(holder: dict[str, Any]) -> str:
    return "".join(_part_text(part) for part in holder["parts"])


def _part_text(part: Json) -> str:
    if "text" in part:
        return str(part["text"])
    if expects := expected_in(part):
        return expected_text(expects)
    if "data" in part:
        return json.dumps(part["data"], ensure_ascii=False, indent=2) + "\n"
    return f"[{part.get('mediaType', 'bytes')}] {part.get('url', part.get('filename', ''))}\n"


# Parts of a message: text, files with name and media type, JSON.

MAX_BYTES = 7 * 1024 * 1024
"""Limit of all files of a message together: as base64 they fit into a server's default limit of 10 MiB."""
STDIN = "-"


def parts(text: str | None, files: Sequence[str] = (), data: str | None = None) -> list[Json]:
    """The parts of a message, in this order: text, files, data. `-` reads standard input, once."""
    if [text, *files].count(STDIN) > 1:
        raise ConfigurationError("Standard input can be read only once.")
    if text is None and not files and data is None:
        raise ConfigurationError("The message is empty: give a text, --file or --data.")
    said: list[Json] = []
    if text is not None:
        said.append({"text": _content(STDIN, MAX_BYTES).decode(errors="replace") if text == STDIN else text})
    left = MAX_BYTES
    for file in files:
        content = _content(file, left)
        left -= len(content)
        said.append(file_part(file, content))
    if data is not None:
        said.append({"data": _data(data)})
    return said


def file_part(file: str, content: bytes) -> Json:
    part: Json = {"raw": b64encode(content).decode(), "mediaType": media_type(file, content)}
    return part if file == STDIN else {**part, "filename": Path(file).name}


def media_type(file: str, content: bytes) -> str:
    """The media type by file name; else text/plain if the content is UTF-8."""
    known = mimetypes.guess_type(file)[0]
    if known:
        return known
    try:
        content.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"


def _content(file: str, limit: int) -> bytes:
    try:
        if file == STDIN:
            content = sys.stdin.buffer.read(limit + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(limit + 1)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read ({error.strerror}).") from None
    if len(content) > limit:
        raise ConfigurationError(
            f"{file} is too large: the files of a message may have at most {MAX_BYTES >> 20} MiB in total."
        )
    return content


def _data(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"--data is not JSON: {error}.") from None
