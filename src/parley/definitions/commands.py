"""The driver `command` in a definition: which program, and how it is spoken to."""

import os
import re
import shutil
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from parley.core.agents import Agent
from parley.definitions.kind import Site, blank
from parley.definitions.places import folder_at, program_at
from parley.drivers.command import MAX_OUTPUT, Command, CommandDriver
from parley.errors import Invalid
from parley.processes.programs import Program
from parley.processes.sandbox import Sandbox

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MEGABYTE = 1024 * 1024


class SandboxOptions(Struct, frozen=True):
    """What the program may see in its sandbox, beside the system and `cwd`; folders are relative to the definition."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool = False


class CommandOptions(Struct, frozen=True):
    run: tuple[str, ...]
    """The program and its arguments. A path is relative to the definition; a bare name is looked for beside the
    Python that runs the server, then on the PATH."""
    input: Literal["text", "json"] = "text"
    output: Literal["text", "jsonl"] = "text"
    env: tuple[str, ...] = ()
    cwd: str = "."
    """Where it runs, relative to the definition."""
    max_output_bytes: int = MAX_OUTPUT
    memory_mb: int | None = None
    cpu_s: int | None = None
    file_mb: int | None = None
    grace_s: float = 2.0
    sandbox: bool | SandboxOptions = False
    """Run it in bubblewrap; true is a sandbox without further folders and without network."""


def start_command(slug: str, options: CommandOptions, site: Site) -> Agent:
    modes = ("*/*",) if options.input == "json" else ("text/*",)
    return replace(blank(slug, options, site), input_modes=modes)


def build_command(agent: Agent, options: CommandOptions, site: Site) -> CommandDriver:
    _check(options)
    program = Program(
        (program_at(options.run[0], site.folder), *options.run[1:]), folder_at(options.cwd, site.folder),
        (options.memory_mb or 0) * _MEGABYTE, options.cpu_s or 0, (options.file_mb or 0) * _MEGABYTE, options.grace_s,
        _sandbox(options, site),
    )  # fmt: skip
    return CommandDriver(agent, Command(program, options.input, options.output, options.env, options.max_output_bytes))


def _sandbox(options: CommandOptions, site: Site) -> Sandbox | None:
    if options.sandbox is False:
        return None
    if shutil.which("bwrap") is None:
        raise Invalid("needs bubblewrap: install the package bubblewrap, which has the program bwrap", field="sandbox")
    asked = SandboxOptions() if options.sandbox is True else options.sandbox
    read, write = ([folder_at(one, site.folder, "sandbox") for one in names] for names in (asked.read, asked.write))
    return Sandbox((folder_at(options.cwd, site.folder), *read), tuple(write), network=asked.network)


def _check(options: CommandOptions) -> None:
    if os.name != "posix":
        raise Invalid("programs can be run only on Linux, macOS and the like", field="run")
    if not options.run or not options.run[0]:
        raise Invalid("names the program and its arguments", field="run")
    if any("\0" in argument for argument in options.run):
        raise Invalid("holds a character that no argument can", field="run")
    for name in options.env:
        if _VARIABLE.fullmatch(name) is None:
            raise Invalid("lists the names of environment variables, not their values", field="env")
    for name, least, most in (
        ("max_output_bytes", 1, 1 << 40), ("memory_mb", 1, 1 << 24), ("cpu_s", 1, 1 << 24),
        ("file_mb", 1, 1 << 24), ("grace_s", 0, 3600),
    ):  # fmt: skip
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise Invalid(f"is between {least} and {most:,}", field=name)
