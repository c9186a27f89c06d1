"""Likely misconfigurations that can be seen without asking anybody: settings, files, this machine."""

import os
import resource
import shutil
import sys
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

from msgspec import Struct

from parley import extras
from parley.cli.server import check_binding
from parley.definitions.reading import Reading, sources
from parley.drivers.llm import LlmDriver
from parley.drivers.org import OrgDriver
from parley.errors import ConfigurationError
from parley.file_modes import OTHERS
from parley.models.names import key_variable
from parley.models.offline import NAME as OFFLINE
from parley.processes.sandbox import bubblewrap
from parley.security.secrets import FILE as KEYS
from parley.settings import FILE as SETTINGS_FILE
from parley.settings import Settings, blobs_location
from parley.stores.damage import damage_at
from parley.stores.locking import LOCK, lock
from parley.stores.sqlite import FILE as DATABASE

LITTLE_DISK = 500 * 1024 * 1024
BIG_STORE = 5 * 1024**3
FEW_FILES = 4096
WIDE_PREFIX = 16
SLOW_COOKIES = {(3, 11): 10, (3, 12): 6}
"""The first patch release of each Python in which `http.cookies` is not quadratic (CVE-2024-7592)."""
_NETWORK_FILESYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "glusterfs", "ceph")


class Finding(Struct, frozen=True):
    """`error`: it will not work; `warning`: it may not, or not as you think; `note`: worth knowing."""

    level: str
    code: str
    message: str
    todo: str


def error(code: str, message: str, todo: str) -> Finding:
    return Finding("error", code, message, todo)


def warning(code: str, message: str, todo: str) -> Finding:
    return Finding("warning", code, message, todo)


def note(code: str, message: str, todo: str) -> Finding:
    return Finding("note", code, message, todo)


def local_findings(settings: Settings, reading: Reading) -> Iterator[Finding]:
    yield from _data_dir(settings)
    yield from _open_to_others(settings)
    yield from _secrets(settings)
    yield from _readable_by_others(settings)
    yield from _allowed(settings)
    yield from _definitions(reading)
    yield from _extras(settings, reading)
    yield from _servers_of_tools(settings, reading)
    yield from _sandboxes(reading)
    yield from _this_machine(settings)
    yield from python_findings(sys.version_info[:3])


def read_definitions(settings: Settings) -> Reading:
    return Reading(sources(settings.agents, SETTINGS_FILE))


def _data_dir(settings: Settings) -> Iterator[Finding]:
    directory = settings.data_dir
    known = next(one for one in (directory, *directory.absolute().parents) if one.exists())
    if not known.is_dir() or not os.access(known, os.W_OK | os.X_OK):
        yield error(
            "data_dir_not_writable", f"{directory} cannot be written to.", "Set data_dir, or give it to the user."
        )
        return
    if shutil.disk_usage(known).free < LITTLE_DISK:
        yield error(
            "disk_full", f"Less than {LITTLE_DISK >> 20} MB are free at {known}.", "Free some, or set keep_days."
        )
    if settings.store != "sqlite":
        return
    if (kind := filesystem_of(known)) in _NETWORK_FILESYSTEMS:
        yield error(
            "sqlite_on_network", f"{directory} is on {kind}, where SQLite's locks do not hold.",
            "Use a local disk, or store = postgres.",
        )  # fmt: skip
    if (directory / LOCK).exists():
        try:
            os.close(lock(directory / LOCK))
        except ConfigurationError:
            yield warning("data_dir_in_use", f"A server uses {directory}.", "Start no second one on it; stop it first.")
        except OSError:
            yield error("data_dir_not_writable", f"{directory / LOCK} cannot be opened.", "Give it to the user.")
    database = directory / DATABASE
    if database.is_file() and (damage := damage_at(database)):
        yield error("database_damaged", f"{database} is damaged: {damage}.", "Move it away and restore a backup.")
    if settings.keep_days is None and database.is_file() and database.stat().st_size > BIG_STORE:
        yield warning("keeps_for_ever", f"{database} is large and nothing is ever forgotten.", "Set keep_days.")


def filesystem_of(path: Path) -> str:
    """The type of the mount that holds a path, as Linux says it; empty elsewhere."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    except OSError:
        return ""
    there = path.resolve()
    holding = [(len(one[1]), one[2]) for one in mounts if there.is_relative_to(one[1].replace("\\040", " "))]
    return max(holding, default=(0, ""))[1]


def _open_to_others(settings: Settings) -> Iterator[Finding]:
    try:
        check_binding(settings)
    except ConfigurationError as wrong:
        yield error("auth_local_in_the_open", wrong.message, "Set auth = required, and make keys: parley keys create.")
    everywhere = settings.host in ("0.0.0.0", "::")
    if everywhere and settings.public_url is None:
        yield warning(
            "public_url_missing", f"Cards and links show localhost, because the server listens on {settings.host}.",
            "Set public_url to the address that clients use.",
        )  # fmt: skip
    if settings.auth == "none":
        yield warning("auth_none", "Everybody who can reach the server may use it.", "Set auth = required.")
    if settings.oidc_issuer and not settings.oidc_audience:
        yield error("oidc_audience_missing", "Tokens for anybody would be taken.", "Set oidc_audience.")


def _secrets(settings: Settings) -> Iterator[Finding]:
    keys = settings.secret_key_file
    if settings.store == "postgres" and keys is None:
        yield warning(
            "secret_key_not_shared", "Each replica makes keys of its own, and cannot read what others encrypted.",
            "Set secret_key_file to one file for all.",
        )  # fmt: skip
    if keys is not None and not keys.is_file():
        yield error("secret_key_missing", f"There is no key file at {keys}.", "Copy it there from another replica.")
    if settings.store == "postgres" and settings.blobs is None:
        yield warning("blobs_not_shared", "Each replica keeps blobs of its own.", "Set blobs to a place for all.")
    location = blobs_location(settings)
    if "://" not in location and location != "memory:" and Path(location).exists() and not os.access(location, os.W_OK):
        yield error("blobs_not_writable", f"{location} cannot be written to.", "Set blobs, or give it to the user.")


def _readable_by_others(settings: Settings) -> Iterator[Finding]:
    directory, blobs = settings.data_dir, blobs_location(settings)
    names = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm")
    looked = [directory, *(directory / name for name in names), settings.secret_key_file or directory / KEYS]
    looked += [] if "://" in blobs or blobs == "memory:" else [Path(blobs)]
    for path in looked:
        if path.exists() and path.stat().st_mode & OTHERS:
            yield warning(
                "readable_by_others", f"{path} can be read or changed by other users of this machine.",
                f"chmod go= {path}",
            )  # fmt: skip


def _allowed(settings: Settings) -> Iterator[Finding]:
    for one in settings.allow_hosts:
        try:
            wide = ip_network(one, strict=False).prefixlen < (WIDE_PREFIX if ":" not in one else 2 * WIDE_PREFIX)
        except ValueError:
            wide = one == "*"
        if wide:
            yield warning(
                "allow_hosts_wide", f"allow_hosts lets agents' addresses lead to all of {one}.",
                "Name the hosts that are needed.",
            )  # fmt: skip


def _definitions(reading: Reading) -> Iterator[Finding]:
    for wrong in reading.faults:
        yield error("definition_wrong", wrong.message, "Mend the definition; see parley agents check.")
    if not reading.faults and not reading.defined:
        yield warning("no_agents", "There are no agents to serve.", "Write definitions in agents/; see docs/agents.md.")
    for one in reading.defined:
        variable = key_variable(one.driver.llm) if isinstance(one.driver, LlmDriver) else None
        if variable is not None and not os.environ.get(variable, "").strip():
            slug = one.driver.agent.slug
            yield error("model_key_missing", f"The model of {slug} has no key.", f"Set {variable} in the environment.")


def _extras(settings: Settings, reading: Reading) -> Iterator[Finding]:
    kinds = {one.kind for one in reading.defined}
    models = {one.driver.agent.model or "" for one in reading.defined if one.kind == "llm"}
    servers = bool(settings.mcp) or any(one.driver.agent.mcp for one in reading.defined)
    needed = {
        "mcp": servers,
        "grpc": settings.grpc_port not in (None, -1),
        "remote": "remote" in kinds,
        "postgres": settings.store == "postgres",
        "redis": settings.redis_url is not None,
        "otel": settings.otel,
    }
    missing = {extra for extra, wanted in needed.items() if wanted and not extras.has(extra)}
    vendors = {model.partition(":")[0] for model in models if ":" in model}
    missing |= {"llm" for vendor in vendors if not extras.has("llm", vendor)}
    for extra in sorted(missing):
        yield error("extra_missing", f"The extra {extra} is not installed.", f"pip install 'parley-a2a[{extra}]'")


def _servers_of_tools(settings: Settings, reading: Reading) -> Iterator[Finding]:
    declared = [(server.name, server.run) for one in reading.defined for server in one.driver.agent.mcp]
    declared += [(str(one.get("name", "")), tuple(one.get("run", ()))) for one in settings.mcp]
    for name, run in declared:
        if run and shutil.which(run[0]) is None:
            yield error(
                "mcp_command_missing", f"The MCP server {name} runs {run[0]}, which is not there.", "Install it."
            )


def _sandboxes(reading: Reading) -> Iterator[Finding]:
    """Organisations with a model may run code that the model wrote."""
    organised = [one.driver.agent for one in reading.defined if isinstance(one.driver, OrgDriver)]
    slugs = [agent.slug for agent in organised if agent.model not in (None, OFFLINE)]
    if slugs and (reason := bubblewrap().reason):
        yield warning(
            "bubblewrap_missing",
            f"Approved code of the models of {', '.join(slugs)} runs without a sandbox: {reason}.",
            "Install the package bubblewrap (the program bwrap), and let it create namespaces.",
        )


def _this_machine(settings: Settings) -> Iterator[Finding]:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= most < FEW_FILES:
        yield warning(
            "few_files", f"This process may open {most} files: so many streams, and no more.", "ulimit -n 65536"
        )


def python_findings(version: tuple[int, int, int]) -> Iterator[Finding]:
    fixed = SLOW_COOKIES.get(version[:2], 0)
    if version[2] < fixed:
        major, minor, patch = version
        yield note(
            "python_slow_cookies",
            f"Python {major}.{minor}.{patch} parses cookies in quadratic time (CVE-2024-7592). "
            "Parley does not use that parser, but libraries of your agents may.",
            f"Update to Python {major}.{minor}.{fixed} or newer.",
        )
