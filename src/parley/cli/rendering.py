"""Print tasks and agent cards for people, and save artifacts as files."""

import asyncio
import json
import mimetypes
import os
import re
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parley.cli.addresses import AgentAddress, member, members, messages_of, resolve, state_of
from parley.cli.chat import text_of
from parley.cli.options import DEFAULT_URL, ERROR, OK
from parley.cli.questions import printable
from parley.client import Json
from parley.client.cards import CardReport, inspect
from parley.errors import ParleyError

_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]')
_SPECIAL = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")
_FILE = re.compile(r"\w\.[A-Za-z0-9]{1,8}$")
MAX_NAME = 120


class FileExists(ParleyError):
    """Saving an artifact would overwrite an existing file."""

    code = "file_exists"


class ArtifactFile(Struct, frozen=True):
    """A part of an artifact as a file; `url` is set when the content is at another address and is not fetched."""

    artifact: str
    name: str
    content: bytes
    media_type: str
    url: str | None = None


def run_show(place: AgentAddress, task: str, save: Path | None, *, force: bool, as_json: bool) -> int:
    found = asyncio.run(_get(place, task))
    files = list(artifact_files(found))
    written = write(files, save, force=force) if save is not None else []
    if as_json:
        print(json.dumps({"task": found, "saved": [str(path) for path in written]}, ensure_ascii=False, indent=2))
    else:
        _print(found, files, written, place)
    return OK if save is None or len(written) == len(files) else ERROR


async def _get(place: AgentAddress, task: str) -> Json:
    async with (await resolve(place)).client() as client:
        return await client.get(task)


def artifact_files(task: Json) -> Iterator[ArtifactFile]:
    """Every part of every artifact as a file with a unique name."""
    taken: set[str] = set()
    for artifact in members(task.get("artifacts")):
        for part in members(artifact.get("parts")):
            content, media, url = _content(part)
            name = _unique(safe_name(_file_name(artifact, part), str(artifact["artifactId"]), media), taken)
            taken.add(name.lower())
            yield ArtifactFile(str(artifact["artifactId"]), name, content, media, url)


def _file_name(artifact: Json, part: Json) -> str:
    """The file name given by the agent: that of the part, else that of the artifact if it looks like a file name."""
    name = str(artifact.get("name") or "")
    return str(part.get("filename") or (name if _FILE.search(name) else ""))


def safe_name(given: str, fallback: str, media_type: str) -> str:
    """A plain file name from the last component of the agent's name: no path, no control or special characters."""
    last = re.split(r"[/\\]", given)[-1]
    name = _UNSAFE.sub("_", last).strip(". ")
    if not name:
        stem = _UNSAFE.sub("_", fallback).strip(". ") or "artifact"
        name = stem[:MAX_NAME] + (_extension(media_type) if "." not in stem else "")
    if _SPECIAL.fullmatch(name):
        name = f"_{name}"
    stem, dot, suffix = name.rpartition(".")
    if len(name) <= MAX_NAME:
        return name
    return stem[: MAX_NAME - len(suffix) - 1] + dot + suffix if dot and len(suffix) < 20 else name[:MAX_NAME]


def write(files: list[ArtifactFile], directory: Path, *, force: bool = False) -> list[Path]:
    """Write all files, or none if one exists and `force` is not set. Links are replaced, never followed."""
    here = [one for one in files if one.url is None]
    directory.mkdir(parents=True, exist_ok=True)
    in_the_way = [one.name for one in here if os.path.lexists(directory / one.name)]
    if in_the_way and not force:
        raise FileExists(f"{directory} already contains {', '.join(in_the_way)}. Use --force to overwrite.")
    return [_written(one, directory, force) for one in here]


def _written(one: ArtifactFile, directory: Path, force: bool) -> Path:
    path = directory / one.name
    try:
        if force:
            handle, temporary = tempfile.mkstemp(dir=directory)
            with os.fdopen(handle, "wb") as file:
                file.write(one.content)
            os.replace(temporary, path)
        else:
            with path.open("xb") as file:
                file.write(one.content)
    except OSError as error:
        raise FileExists(f"{path} cannot be written ({error.strerror}).") from None
    return path


def _content(part: Json) -> tuple[bytes, str, str | None]:
    media = part.get("mediaType")
    if "text" in part:
        return str(part["text"]).encode(), str(media or "text/plain"), None
    if "raw" in part:
        return b64decode(str(part["raw"])), str(media or "application/octet-stream"), None
    if "data" in part:
        text = json.dumps(part["data"], ensure_ascii=False, indent=2)
        return text.encode() + b"\n", str(media or "application/json"), None
    return b"", str(media or "application/octet-stream"), str(part.get("url", ""))


def _extension(media_type: str) -> str:
    return mimetypes.guess_extension(media_type.partition(";")[0].strip()) or ".bin"


def _unique(name: str, taken: set[str]) -> str:
    """A name that is not taken, also on case-insensitive file systems."""
    stem, dot, suffix = name.rpartition(".")
    candidate, number = name, 1
    while candidate.lower() in taken:
        number += 1
        candidate = f"{stem}-{number}.{suffix}" if dot and stem else f"{name}-{number}"
    return candidate


def _print(task: Json, files: list[ArtifactFile], written: list[Path], place: AgentAddress) -> None:
    console = Console(highlight=False)
    state, at = state_of(task).replace("_", "-"), member(task.get("status")).get("timestamp", "")
    console.print(f"[bold]{escape(str(task['id']))}[/bold]  {state}  [dim]{at}[/dim]")
    console.print(f"[dim]context {escape(str(task.get('contextId', '')))}[/dim]")
    for about in map(member, member(task.get("metadata")).values()):
        if {"task", "at"} <= set(about):
            console.print(f"[dim]forked from {escape(str(about['task']))} at {about['at']}[/dim]")
    for said in messages_of(task):
        who = "you" if str(said.get("role")).upper().endswith("USER") else "agent"
        colour = "cyan" if who == "you" else "green"
        console.print(f"\n[{colour}]{who}:[/{colour}] {escape(printable(text_of(said)).rstrip())}", soft_wrap=True)
    if files:
        console.print("\n[bold]artifacts[/bold]")
    for one in files:
        size = one.url if one.url is not None else _size(len(one.content))
        console.print(f"  {escape(one.name)}  [dim]{escape(one.media_type)}, {escape(size)}[/dim]", soft_wrap=True)
        if one.url is None and one.media_type.startswith("text/") and not written:
            preview = one.content.decode(errors="replace")
            console.print(escape(_indented(printable(preview))), soft_wrap=True)
    for path in written:
        console.print(f"saved {escape(str(path))}", soft_wrap=True)
    notes = Console(stderr=True, highlight=False)
    if files and not written:
        back = place.options(DEFAULT_URL)
        notes.print(f"Save: parley show {task['id']} --save DIR{back}", style="dim", soft_wrap=True)
    if any(one.url is not None for one in files):
        notes.print("Artifacts at other addresses are not downloaded.", style="dim")


def _indented(text: str, lines: int = 12) -> str:
    shown = text.splitlines()
    more = [f"… {len(shown) - lines} more lines"] if len(shown) > lines else []
    return "\n".join(f"    {line}" for line in [*shown[:lines], *more])


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} bytes"
    return f"{count / 1024:.1f} KiB" if count < 1024**2 else f"{count / 1024**2:.1f} MiB"


# Agent cards: interfaces, skills, findings and signatures.


def run_card(address: str, *, token: str | None, as_json: bool) -> int:
    report = asyncio.run(inspect(address, token=token))
    if as_json:
        print(json.dumps(_card_entry(report), indent=2))
    else:
        _print_card(report)
    return OK if report.valid else ERROR


def _card_entry(report: CardReport) -> Json:
    return {
        "url": report.url,
        "valid": report.valid,
        "findings": msgspec.to_builtins(report.findings),
        "verified": msgspec.to_builtins(report.verified),
        "card": report.card,
    }


def _print_card(report: CardReport) -> None:
    console, card = Console(highlight=False), report.card
    console.print(f"[bold]{card.get('name', '?')}[/bold] {card.get('version', '')}  [dim]{report.url}[/dim]")
    console.print(str(card.get("description", "")))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for one in members(card.get("supportedInterfaces")):
        table.add_row(str(one.get("protocolBinding")), str(one.get("protocolVersion")), str(one.get("url")))
    if "url" in card and not table.rows:
        table.add_row(
            str(card.get("preferredTransport", "JSONRPC")), str(card.get("protocolVersion")), str(card["url"])
        )
    console.print(table)
    for skill in members(card.get("skills")):
        console.print(f"  [cyan]{skill.get('id')}[/cyan] {skill.get('description', '')}")
    for one in report.verified:
        console.print(f"[green]signed[/green] by {one.kid} (covers {one.covers})")
    for finding in report.findings:
        colour = "red" if finding.level == "error" else "yellow"
        console.print(f"[{colour}]{finding.level}[/{colour}] {finding.field}: {finding.message}")
    console.print("[green]valid[/green]" if report.valid else "[red]not valid[/red]")
