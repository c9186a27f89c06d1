"""Talk to agents from the terminal."""

import asyncio
import json
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from parley.cli.exits import INTERRUPTED, NOT_COMPLETED, OK, WAITS
from parley.cli.options import DEFAULT_URL
from parley.cli.places import Place, Reached, reach
from parley.cli.wire import member, state_of
from parley.client import UNSUPPORTED, Content, Json, RemoteError
from parley.errors import Unsupported

_COLOURS = {
    "COMPLETED": "green",
    "FAILED": "red",
    "REJECTED": "red",
    "CANCELED": "yellow",
    "INPUT_REQUIRED": "cyan",
    "AUTH_REQUIRED": "cyan",
}

_ENDED = ("COMPLETED", "FAILED", "REJECTED", "CANCELED")


def run_send(
    place: Place, content: Content, *, task: str | None = None, context: str | None = None,
    stream: bool = True, wait: bool = True, as_json: bool = False,
) -> int:  # fmt: skip
    with Printer(place, as_json) as printer:
        return _interruptible(_send(place, content, task, context, stream, wait, printer), printer)


def run_tail(place: Place, task: str, after: int | None, *, as_json: bool) -> int:
    with Printer(place, as_json, numbered=True) as printer:
        return _interruptible(_tail(place, task, after, printer), printer)


def run_cancel(place: Place, task: str, reason: str | None, *, as_json: bool) -> int:
    return asyncio.run(_cancel(place, task, reason, as_json))


def run_fork(place: Place, task: str, at: int | None, content: Content | None, *, wait: bool, as_json: bool) -> int:
    with Printer(place, as_json) as printer:
        return _interruptible(_fork(place, task, at, content, wait, as_json, printer), printer)


def _interruptible(work: Coroutine[Any, Any, int], printer: "Printer") -> int:
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        printer.interrupted()
        return INTERRUPTED


async def _send(
    place: Place, content: Content, task: str | None, context: str | None, stream: bool, wait: bool, printer: "Printer"
) -> int:
    reached = await reach(place)
    async with reached.client(printer.retrying) as client:
        if stream and wait:
            try:
                async for result in client.stream(content, task=task, context=context):
                    printer.show(result)
                return printer.finish()
            except RemoteError as error:
                # Refused before anything was begun, so it can be sent in another way.
                if printer.begun or not _does_not_stream(error):
                    raise
        configuration = None if wait else {"returnImmediately": True}
        printer.show(await client.send(content, task=task, context=context, configuration=configuration))
    return printer.finish(waited=wait)


async def _tail(place: Place, task: str, after: int | None, printer: "Printer") -> int:
    await _follow(await reach(place), task, after, printer)
    return printer.finish()


async def _cancel(place: Place, task: str, reason: str | None, as_json: bool) -> int:
    async with (await reach(place)).client() as client:
        found = await client.cancel(task, reason)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        state = state_of(found)
        print(state if state == "canceled" else f"canceling (still {state})")
    return OK


async def _fork(
    place: Place, task: str, at: int | None, content: Content | None, wait: bool, as_json: bool, printer: "Printer"
) -> int:
    reached = await reach(place)
    if not reached.ours:
        raise Unsupported("Only a Parley server can fork a task; this one does not say that it is one.")
    async with reached.client() as client:
        fork = await client.fork(task, at, content)
    printer.show({"task": {**fork, "artifacts": []}} if not as_json else {"task": fork})
    made_at = next((one["at"] for one in map(member, member(fork.get("metadata")).values()) if "at" in one), None)
    if wait:
        await _follow(reached, fork["id"], made_at, printer, settled=True)
    return printer.finish(waited=wait)


async def _follow(reached: Reached, task: str, after: int | None, printer: "Printer", *, settled: bool = False) -> None:
    async with reached.client(printer.retrying) as client, aclosing(client.tail(task, after)) as steps:
        async for seq, result in steps:
            printer.show(result, seq)
            if settled and printer.waits:
                return


def _does_not_stream(error: RemoteError) -> bool:
    return error.rpc == UNSUPPORTED and "stream" in error.message.lower()


class Printer:
    """Text as it comes on standard output, everything about it on standard error; a spinner there while nothing comes,
    if somebody looks."""

    def __init__(self, place: Place, as_json: bool, *, numbered: bool = False) -> None:
        self._place = place
        self._as_json = as_json
        self._numbered = numbered
        self._notes = Console(stderr=True, highlight=False)
        self._spinner: Status | None = None
        self._mid_line = False
        self._shown = ""
        """The artifact that was shown last: another one begins on a line of its own."""
        self._task = ""
        self._state = ""
        self.begun = False

    def __enter__(self) -> "Printer":
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    @property
    def waits(self) -> bool:
        return self._state.endswith("REQUIRED")

    def show(self, result: Json, seq: int = 0) -> None:
        self._stop()
        self.begun = True
        number = {"seq": seq} if self._numbered and seq else {}
        if self._as_json:
            print(json.dumps({**number, **result}, ensure_ascii=False), flush=True)
        if task := result.get("task"):
            self._see(task["id"], task["status"], seq)
            for artifact in task.get("artifacts", []):
                self._artifact(artifact)
        elif update := result.get("statusUpdate"):
            self._see(update["taskId"], update["status"], seq)
        elif update := result.get("artifactUpdate"):
            self._artifact(update["artifact"])
        elif message := result.get("message"):
            self._state = "COMPLETED"
            self._say(text_of(message))
        self._wait()

    def finish(self, *, waited: bool = True) -> int:
        self._stop()
        if not self._as_json:
            self._break()
            colour = _COLOURS.get(self._state, "white")
            self._note(f"[{colour}]{self._state.lower()}[/{colour}] [dim]{escape(self._task)}[/dim]")
            back = self._place.options(DEFAULT_URL)
            if self.waits:
                self._note(f"[dim]Answer: parley answer {self._task} 'your answer'{escape(back)}[/dim]")
            elif not waited and self._state in ("SUBMITTED", "WORKING"):
                self._note(f"[dim]Follow: parley tail {self._task}{escape(back)}[/dim]")
        if self.waits:
            return WAITS
        if not waited and self._state in ("SUBMITTED", "WORKING"):
            return OK
        return OK if self._state == "COMPLETED" else NOT_COMPLETED

    def retrying(self, reason: str, pause_s: float) -> None:
        """Report that the connection is tried again."""
        self._stop()
        self._break()
        self._note(f"[yellow]{escape(reason)}[/yellow] [dim]trying again in {pause_s:g} s[/dim]")
        self._wait()

    def interrupted(self) -> None:
        """Report that the task continues without this command."""
        self._stop()
        self._break()
        if not self._task:
            self._note("Interrupted before the server answered.")
        elif self._state not in _ENDED:
            back = escape(self._place.options(DEFAULT_URL))
            self._note(f"Interrupted. The task continues on the server: {escape(self._task)}")
            self._note(f"[dim]Follow: parley tail {self._task}{back}[/dim]")
            self._note(f"[dim]Cancel: parley cancel {self._task}{back}[/dim]")

    def _see(self, task: str, status: Json, seq: int) -> None:
        self._task, self._state = task, str(status["state"]).removeprefix("TASK_STATE_")
        if self._as_json or ("message" not in status and not (self._numbered and seq)):
            return
        self._break()
        number = f"[dim]{seq:>5} [/dim]" if self._numbered and seq else ""
        words = f" {escape(text_of(status['message']))}" if "message" in status else ""
        self._note(f"{number}[dim]{self._state.lower()}{':' if words else ''}[/dim]{words}")

    def _artifact(self, artifact: Json) -> None:
        if artifact["artifactId"] != self._shown:
            self._break()
        self._shown = str(artifact["artifactId"])
        for part in artifact["parts"]:
            name = part.get("filename")
            if name and not self._as_json:
                self._break()
                self._note(f"[dim]file {escape(str(name))}:[/dim]")
        self._say(text_of(artifact))

    def _say(self, text: str) -> None:
        if text and not self._as_json:
            print(text, end="", flush=True)
            self._mid_line = not text.endswith("\n")

    def _break(self) -> None:
        if self._mid_line:
            print(flush=True)
            self._mid_line = False

    def _note(self, markup: str) -> None:
        self._notes.print(markup, soft_wrap=True)

    def _wait(self) -> None:
        """Not in the middle of a line: a spinner would write over it."""
        busy = self._state in ("", "SUBMITTED", "WORKING")
        if self._as_json or self._mid_line or not busy or not self._notes.is_terminal:
            return
        self._spinner = self._notes.status(f"[dim]{self._state.lower() or 'waiting'}[/dim]")
        self._spinner.start()

    def _stop(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None


def text_of(holder: dict[str, Any]) -> str:
    return "".join(_part(part) for part in holder["parts"])


def _part(part: Json) -> str:
    if "text" in part:
        return str(part["text"])
    if "data" in part:
        return json.dumps(part["data"], ensure_ascii=False, indent=2) + "\n"
    return f"[{part.get('mediaType', 'bytes')}] {part.get('url', part.get('filename', ''))}\n"
