"""Checks of `parley doctor`: likely mistakes in a server's setup, each with a fix."""

import asyncio
import json
import os
import resource
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from ipaddress import ip_network
from pathlib import Path

import httpx2
import msgspec
from msgspec import Struct
from rich.console import Console

from parley import extras
from parley.app.application import check_binding
from parley.app.workers import cores
from parley.cli.options import ERROR, OK
from parley.client.http import ask
from parley.clock import now_ms
from parley.definitions.loader import LoadedDefinitions, sources
from parley.drivers.agentzero import AgentZeroDriver
from parley.drivers.llm.driver import LlmDriver
from parley.drivers.org import OrgDriver
from parley.errors import ConfigurationError, ReplyTooLarge
from parley.models.endpoint import key_variable
from parley.models.offline import NAME as OFFLINE
from parley.processes.sandbox import bubblewrap
from parley.security.files import OTHERS
from parley.security.outbound import open_client
from parley.security.secrets import FILE as KEYS
from parley.settings import FILE as SETTINGS_FILE
from parley.settings import Settings, blobs_location, load, postgres_url
from parley.stores.postgres import replica_connections
from parley.stores.postgres_pool import TROUBLE, connect
from parley.stores.schema import migrations
from parley.stores.sqlite import FILE as DATABASE
from parley.stores.sqlite_file import LOCK, damage_at, lock

# Checks that need no connection: settings, files, this machine.

LITTLE_DISK = 500 * 1024 * 1024
BIG_STORE = 5 * 1024**3
FEW_FILES = 4096
WIDE_PREFIX = 16
SLOW_COOKIES = {(3, 11): 10, (3, 12): 6}
"""The first patch release of each Python in which `http.cookies` is not quadratic (CVE-2024-7592)."""
_NETWORK_FILESYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "glusterfs", "ceph")


class Finding(Struct, frozen=True):
    """One result of a check. Levels: `error` (it will not work), `warning` (it may not work as expected), `note`."""

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


def local_findings(settings: Settings, reading: LoadedDefinitions) -> Iterator[Finding]:
    yield from _data_dir(settings)
    yield from _open_to_others(settings)
    yield from _secrets(settings)
    yield from _readable_by_others(settings)
    yield from _wide_hosts(settings)
    yield from _definitions(reading)
    yield from _extras(settings, reading)
    yield from _servers_of_tools(settings, reading)
    yield from _sandboxes(reading)
    yield from _this_machine(settings)
    yield from python_findings(sys.version_info[:3])


def read_definitions(settings: Settings) -> LoadedDefinitions:
    return LoadedDefinitions(sources(settings.agents, SETTINGS_FILE))


def _data_dir(settings: Settings) -> Iterator[Finding]:
    directory = settings.data_dir
    known = next(one for one in (directory, *directory.absolute().parents) if one.exists())
    if not known.is_dir() or not os.access(known, os.W_OK | os.X_OK):
        yield error(
            "data_dir_not_writable", f"{directory} is not writable.", "Set data_dir, or give this user write access."
        )
        return
    if shutil.disk_usage(known).free < LITTLE_DISK:
        yield error(
            "disk_full", f"Less than {LITTLE_DISK >> 20} MB are free at {known}.", "Free disk space, or set keep_days."
        )
    if settings.store != "sqlite":
        return
    if (kind := filesystem_of(known)) in _NETWORK_FILESYSTEMS:
        yield error(
            "sqlite_on_network",
            f"{directory} is on {kind}, where SQLite's file locks do not work.",
            "Use a local disk, or store = postgres.",
        )
    if (directory / LOCK).exists():
        try:
            os.close(lock(directory / LOCK))
        except ConfigurationError:
            yield warning(
                "data_dir_in_use", f"A server uses {directory}.", "Stop it before you start another one there."
            )
        except OSError:
            yield error("data_dir_not_writable", f"{directory / LOCK} cannot be opened.", "Give this user access.")
    database = directory / DATABASE
    if database.is_file() and (damage := damage_at(database)):
        yield error("database_damaged", f"{database} is damaged: {damage}.", "Move it away and restore a backup.")
    if settings.keep_days is None and database.is_file() and database.stat().st_size > BIG_STORE:
        yield warning("keeps_for_ever", f"{database} is large, and ended runs are kept forever.", "Set keep_days.")


def filesystem_of(path: Path) -> str:
    """The file system type of the mount that holds a path, from /proc/mounts; empty where there is none."""
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
        yield error(
            "auth_local_in_the_open", wrong.message, "Set auth = required, and create keys with parley keys create."
        )
    everywhere = settings.host in ("0.0.0.0", "::")
    if everywhere and settings.public_url is None:
        yield warning(
            "public_url_missing",
            f"The server listens on {settings.host}, so cards and links show localhost.",
            "Set public_url to the address that clients use.",
        )
    if settings.auth == "none":
        yield warning("auth_none", "Every client that can reach the server may use it.", "Set auth = required.")
    if settings.oidc_issuer and not (settings.oidc_audience or settings.oidc_client_id):
        yield error("oidc_audience_missing", "Tokens for any audience would be accepted.", "Set oidc_audience.")


def _secrets(settings: Settings) -> Iterator[Finding]:
    keys = settings.secret_key_file
    if settings.store == "postgres" and keys is None:
        yield warning(
            "secret_key_not_shared",
            "Each replica creates its own keys and cannot decrypt the secrets of other replicas.",
            "Set secret_key_file to one file that all replicas share.",
        )
    if keys is not None and not keys.is_file():
        yield error("secret_key_missing", f"There is no key file at {keys}.", "Copy it there from another replica.")
    if settings.store == "postgres" and settings.blobs is None:
        yield warning(
            "blobs_not_shared", "Each replica stores its own blobs.", "Set blobs to a location that all replicas share."
        )
    location = blobs_location(settings)
    if "://" not in location and location != "memory:" and Path(location).exists() and not os.access(location, os.W_OK):
        yield error("blobs_not_writable", f"{location} is not writable.", "Set blobs, or give this user write access.")


def _readable_by_others(settings: Settings) -> Iterator[Finding]:
    directory, blobs = settings.data_dir, blobs_location(settings)
    names = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm")
    looked = [directory, *(directory / name for name in names), settings.secret_key_file or directory / KEYS]
    looked += [] if "://" in blobs or blobs == "memory:" else [Path(blobs)]
    for path in looked:
        if path.exists() and path.stat().st_mode & OTHERS:
            yield warning(
                "readable_by_others",
                f"{path} can be read or changed by other users of this machine.",
                f"chmod go= {path}",
            )


def _wide_hosts(settings: Settings) -> Iterator[Finding]:
    for one in settings.allow_hosts:
        try:
            wide = ip_network(one, strict=False).prefixlen < (WIDE_PREFIX if ":" not in one else 2 * WIDE_PREFIX)
        except ValueError:
            wide = one == "*"
        if wide:
            yield warning(
                "allow_hosts_wide",
                f"allow_hosts lets addresses of agents point to all of {one}.",
                "List only the hosts that are needed.",
            )


def _definitions(reading: LoadedDefinitions) -> Iterator[Finding]:
    for wrong in reading.faults:
        yield error("definition_wrong", wrong.message, "Fix the definition; see parley agents check.")
    if not reading.faults and not reading.defined:
        yield warning("no_agents", "There are no agents to serve.", "Write definitions in agents/; see docs/agents.md.")
    for one in reading.defined:
        variable = key_variable(one.driver.llm) if isinstance(one.driver, LlmDriver) else None
        if variable is not None and not os.environ.get(variable, "").strip():
            slug = one.driver.agent.slug
            yield error(
                "model_key_missing", f"The model of {slug} has no API key.", f"Set {variable} in the environment."
            )


def _extras(settings: Settings, reading: LoadedDefinitions) -> Iterator[Finding]:
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


def _servers_of_tools(settings: Settings, reading: LoadedDefinitions) -> Iterator[Finding]:
    declared = [(server.name, server.run) for one in reading.defined for server in one.driver.agent.mcp]
    declared += [(str(one.get("name", "")), tuple(one.get("run", ()))) for one in settings.mcp]
    for name, run in declared:
        if run and shutil.which(run[0]) is None:
            yield error(
                "mcp_command_missing", f"The MCP server {name} runs {run[0]}, which is not installed.", "Install it."
            )


def _sandboxes(reading: LoadedDefinitions) -> Iterator[Finding]:
    """Check the sandbox: organisations with a model may run code that the model wrote."""
    organised = [one.driver.agent for one in reading.defined if isinstance(one.driver, OrgDriver)]
    slugs = [agent.slug for agent in organised if agent.model not in (None, OFFLINE)]
    if slugs and (reason := bubblewrap().reason):
        yield warning(
            "bubblewrap_missing",
            f"Approved code from the models of {', '.join(slugs)} runs without a sandbox: {reason}.",
            "Install the package bubblewrap (the program bwrap), and allow it to create namespaces.",
        )


def _this_machine(settings: Settings) -> Iterator[Finding]:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= most < FEW_FILES:
        yield warning(
            "few_files", f"This process may open only {most} files, and each stream needs one.", "Run ulimit -n 65536."
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


# Checks that need a connection: the database, Redis, the OIDC issuer, the port.

ANSWER_S = 5.0
OLDEST_POSTGRES = 14
SKEW_MS = 2000


async def remote_findings(settings: Settings, reading: LoadedDefinitions) -> AsyncIterator[Finding]:
    for found in _port(settings):
        yield found
    if settings.store == "postgres":
        async for found in _postgres(settings):
            yield found
    if settings.redis_url is not None and not await _redis_answers(settings.redis_url.get_secret_value()):
        yield error("redis_unreachable", "Redis does not answer.", "Start it, fix redis_url, or remove it.")
    if settings.oidc_issuer is not None:
        place = settings.oidc_jwks_url or f"{settings.oidc_issuer.rstrip('/')}/.well-known/openid-configuration"
        if not await _serves_json(place):
            yield error(
                "issuer_unreachable", f"{place} does not answer with JSON.", "Fix oidc_issuer or oidc_jwks_url."
            )
    for one in reading.defined:
        if isinstance(one.driver, AgentZeroDriver) and not await _listens(one.driver.url):
            slug = one.driver.agent.slug
            yield error(
                "agentzero_unreachable", f"The Agent-Zero of {slug} does not answer.", f"Start it at {one.driver.url}."
            )


def _port(settings: Settings) -> list[Finding]:
    found: list[Finding] = []
    for name, port in (("port", settings.port), ("grpc_port", settings.grpc_port)):
        if port is None or port <= 0:
            continue
        try:
            family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
            socket.create_server((settings.host, port), family=family).close()
        except OSError as wrong:
            found.append(
                error("port_taken", f"Cannot listen on {settings.host}:{port}: {wrong.strerror}.", f"Set {name}.")
            )
    return found


async def _postgres(settings: Settings) -> AsyncIterator[Finding]:
    try:
        async with asyncio.timeout(ANSWER_S):
            connection = await connect(postgres_url(settings))
    except ConfigurationError as wrong:
        yield error("postgres_url_missing", wrong.message, "Set postgres_url.")
        return
    except (*TROUBLE, TimeoutError, ValueError) as wrong:
        # The exception's text may contain the address, and the address a password.
        yield error(
            "postgres_unreachable", f"PostgreSQL cannot be reached ({type(wrong).__name__}).", "Check postgres_url."
        )
        return
    try:
        version = connection.get_server_version().major
        before = now_ms()
        theirs = await connection.fetchval("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        skew = theirs - (before + now_ms()) // 2
        most = int(await connection.fetchval("SHOW max_connections"))
        known = await connection.fetchval("SELECT to_regclass('migrations') IS NOT NULL")
        done = {row[0] for row in await connection.fetch("SELECT id FROM migrations")} if known else set[str]()
    finally:
        await connection.close()
    if version < OLDEST_POSTGRES:
        yield error("postgres_too_old", f"PostgreSQL is {version}.", f"Use {OLDEST_POSTGRES} or newer.")
    if abs(skew) > SKEW_MS:
        yield warning(
            "clock_skew", f"The database's clock differs by {skew / 1000:.1f} s.", "Synchronise both clocks with NTP."
        )
    each, replicas = replica_connections(settings.postgres_writers), _replicas(settings)
    if most < replicas * each:
        yield warning(
            "few_connections",
            f"PostgreSQL accepts {most} connections; a replica opens up to {each}, and {replicas} may run at once.",
            f"Raise max_connections to {replicas * each} or more.",
        )
    pending = [one for one in migrations("postgres") if one.id not in done]
    if pending:
        late = all(one.phase == "post" for one in pending)
        advice = "Run parley migrate --phase post when no server of the older version runs."
        yield warning(
            "migrations_pending",
            f"{len(pending)} migrations are pending.",
            advice if late else "Run parley migrate, or start a server.",
        )


def _replicas(settings: Settings) -> int:
    """Return how many replicas may run at once: three, or the workers and one more while they are replaced."""
    return max(3, (cores() if settings.workers == "auto" else settings.workers) + 1)


async def _redis_answers(url: str) -> bool:
    try:
        from redis.asyncio import Redis
        from redis.exceptions import RedisError
    except ModuleNotFoundError:
        return True
    client = Redis.from_url(url, socket_connect_timeout=ANSWER_S, socket_timeout=ANSWER_S)  # pyright: ignore
    try:
        await client.ping()  # pyright: ignore
    except (RedisError, OSError, ValueError):
        return False
    finally:
        await client.aclose()
    return True


async def _serves_json(url: str) -> bool:
    try:
        async with open_client(timeout=ANSWER_S) as http:
            answer = await ask(http, "GET", url)
        return answer.status == 200 and isinstance(answer.body, dict)
    except (httpx2.HTTPError, httpx2.InvalidURL, ReplyTooLarge):
        return False


async def _listens(url: str) -> bool:
    try:
        async with open_client(timeout=ANSWER_S) as http, http.stream("GET", url):
            pass
    except ReplyTooLarge:
        return True
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return False
    return True


def run_doctor(agents: Sequence[str] | None, data_dir: Path | None, *, as_json: bool) -> int:
    """Print the findings. The exit code is 1 if one of them is an error."""
    try:
        findings = asyncio.run(diagnose(load(data_dir=data_dir, agents=list(agents) if agents else None)))
    except ConfigurationError as wrong:
        findings = [error("settings_wrong", wrong.message, "Fix parley.toml or the environment; see parley config.")]
    if as_json:
        print(json.dumps({"findings": msgspec.to_builtins(findings)}, indent=2))
    else:
        _print(findings)
    return ERROR if any(one.level == "error" for one in findings) else OK


async def diagnose(settings: Settings) -> list[Finding]:
    reading = read_definitions(settings)
    return [*local_findings(settings, reading), *[one async for one in remote_findings(settings, reading)]]


def _print(findings: list[Finding]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for one in findings:
        style = {"error": "red", "warning": "yellow"}.get(one.level, "dim")
        console.print(f"[{style}]{one.level}[/{style}] {one.code}: ", end="")
        console.print(f"{one.message} {one.todo}", markup=False)
    if all(one.level == "note" for one in findings):
        console.print("No problems found.")
