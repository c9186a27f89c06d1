"""The server of the organisation contract (001): its configuration file becomes settings and one driver."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.drivers.agentzero import AgentZeroOptions
from parley.drivers.agentzero.driver import build_agentzero
from parley.drivers.kind import Imports, Site
from parley.drivers.org.driver import OrgOptions, build_organisation
from parley.errors import ConfigurationError, Invalid
from parley.execution.driver import Driver
from parley.orgkernel.card import blank_agent
from parley.orgkernel.json_structs import is_object, members_of
from parley.runs.rules.agents import Agent, Limits
from parley.settings import PREFIX, Settings, load

# The configuration file of the organisation contract (001): with or without the wrapper `a2a_server`, with the field
# names of the contract or of its origin.

WRAPPER = "a2a_server"
DEFAULT_URL = "http://localhost:5000"
"""URL at which the contract expects Agent-Zero."""
MAX_FILE = 1024 * 1024

Kind = TypeVar("Kind", bound=str)
Scheme = Literal["none", "api_key", "oauth"]
Method = Literal["direct", "embedded"]
_SCHEMES: dict[str, Scheme] = {
    "none": "none", "api_key": "api_key", "apikey": "api_key", "oauth": "oauth", "oauth2": "oauth", "oidc": "oauth",
}  # fmt: skip
_METHODS: dict[str, Method] = {
    "direct": "direct", "http": "direct", "agent_zero": "direct", "agentzero": "direct",
    "embedded": "embedded", "kernel": "embedded",
}  # fmt: skip
_SPELLINGS = {"base_url": "agent_zero_url"}
"""Field names of the contract's origin, and the contract's names for them."""


class OrgFileAuthentication(Struct, frozen=True):
    """Authentication. A missing scheme is not the same as `none`: without a scheme only this machine has access."""

    scheme: str | None = None
    api_key: str | None = None
    issuer: str | None = None
    audience: str | None = None
    jwks_url: str | None = None

    @property
    def kind(self) -> Scheme | None:
        return None if self.scheme is None else _one_of(self.scheme, _SCHEMES, "authentication.scheme")


class OrgFileConnection(Struct, frozen=True):
    method: str | None = None
    agent_zero_url: str | None = None
    api_key: str | None = None
    user: str | None = None
    password_from: str | None = None

    @property
    def kind(self) -> Method:
        """The method. If it is not set, it is `direct` when there is a URL of an Agent-Zero, else `embedded`."""
        if self.method is not None:
            return _one_of(self.method, _METHODS, "agent_connection.method")
        return "embedded" if self.agent_zero_url is None else "direct"


class Queue(Struct, frozen=True):
    max_concurrent: int = 1
    max_queued: int = 10
    task_timeout_seconds: float = 600.0


class OrgFile(Struct, frozen=True):
    """The configuration file. `public_url`, `data_dir`, `roots` and `model` are additions to the contract's fields."""

    enabled: bool = True
    host: str | None = None
    port: int | None = None
    public_url: str | None = None
    authentication: OrgFileAuthentication = OrgFileAuthentication()
    agent_connection: OrgFileConnection = OrgFileConnection()
    task_queue: Queue = Queue()
    salute_poll_interval_seconds: float = 2.0
    org_dir: str | None = None
    reports_dir: str | None = None
    roles_dir: str | None = None
    plan_library_path: str | None = None
    data_dir: str | None = None
    roots: tuple[str, ...] | None = None
    """Folders whose files tasks may read, change and deliver."""
    model: str | None = None
    model_key_from: str | None = None
    model_base_url: str | None = None


_TABLES: dict[str, type[Struct]] = {
    "": OrgFile, "authentication": OrgFileAuthentication, "agent_connection": OrgFileConnection, "task_queue": Queue,
}  # fmt: skip


def read_orgfile(path: Path) -> tuple[OrgFile, list[str]]:
    """Read the file. Returns its content, and the names of its unknown fields."""
    try:
        if path.stat().st_size > MAX_FILE:
            raise ConfigurationError(f"{path} is larger than {MAX_FILE:,} bytes.")
        value = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{path} is not JSON: {error}.") from None
    return parse_orgfile(value, str(path))


def parse_orgfile(value: object, name: str = "The configuration") -> tuple[OrgFile, list[str]]:
    if not is_object(value):
        raise ConfigurationError(f"{name}: must be a JSON object.")
    whole = members_of(value)
    fields, beside = (members_of(whole[WRAPPER]), set(whole) - {WRAPPER}) if WRAPPER in whole else (whole, set[str]())
    said = _spelled(fields)
    try:
        found = msgspec.convert(said, OrgFile)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{name}: {error}.") from None
    return found, [*sorted(beside), *_unknown(said)]


def _spelled(fields: dict[str, object]) -> dict[str, object]:
    """Return the fields with the contract's names. Fields that are null are left out."""
    spelled: dict[str, object] = {}
    for name, value in fields.items():
        if value is None:
            continue
        spelled[_SPELLINGS.get(name, name)] = _spelled(members_of(value)) if is_object(value) else value
    return spelled


def _unknown(said: dict[str, object]) -> Iterator[str]:
    """Yield the unknown fields. Names that begin with an underscore are comments."""
    for table, kind in _TABLES.items():
        given = said.get(table, {}) if table else said
        for name in members_of(given):
            if name not in kind.__struct_fields__ and not name.startswith("_"):
                yield f"{table}.{name}" if table else name


def _one_of(given: str, known: dict[str, Kind], field: str) -> Kind:
    found = known.get(given.strip().lower().replace("-", "_"))
    if found is None:
        names = ", ".join(dict.fromkeys(known.values()))
        raise ConfigurationError(f"{field}: must be one of {names}, not {given!r}.", field=field)
    return found


SLUG = "org"
DATA = "a2a_data"
ORGANISATIONS = "/a0/usr/organizations"
"""Folder of the organisations in Agent-Zero."""
_FIELDS = {
    "folder": "org_dir", "organisation": "org_dir", "reports": "reports_dir", "roles": "roles_dir",
    "workflows": "plan_library_path", "roots": "roots", "key_from": "model_key_from", "base_url": "model_base_url",
    "url": "agent_connection.agent_zero_url", "key": "agent_connection.api_key", "user": "agent_connection.user",
    "password_from": "agent_connection.password_from", "poll_s": "salute_poll_interval_seconds",
    "max_concurrent": "task_queue.max_concurrent", "max_queued": "task_queue.max_queued",
    "timeout_s": "task_queue.task_timeout_seconds",
}  # fmt: skip
"""Driver options, and the file's field for each of them."""


def settings_of(file: OrgFile, folder: Path, **given: Any) -> Settings:
    """Return the settings: from the command line, else from the environment, else from the file in `folder`."""
    said = {
        "host": file.host,
        "port": file.port,
        "public_url": file.public_url,
        "log_requests": True,
        "data_dir": folder / (file.data_dir or DATA),
        "default_agent": SLUG,
        **_authentication(file),
    }
    in_environment = {name.upper() for name in os.environ}
    said = {name: value for name, value in said.items() if (PREFIX + name).upper() not in in_environment}
    return load(**{**said, **{name: value for name, value in given.items() if value is not None}})


def _authentication(file: OrgFile) -> dict[str, Any]:
    said = file.authentication
    match said.kind:
        case None:
            return {}
        case "none":
            return {"auth": "none"}
        case "api_key":
            return {"auth": "required", "api_key": said.api_key}
        case "oauth":
            if not said.issuer or not said.audience:
                missing = "audience" if said.issuer else "issuer"
                raise ConfigurationError(f"authentication.scheme oauth needs authentication.{missing}.", field=missing)
            return {
                "auth": "required",
                "oidc_issuer": said.issuer,
                "oidc_audience": said.audience,
                "oidc_jwks_url": said.jwks_url,
                "api_key": said.api_key,
            }


def driver_of(file: OrgFile, folder: Path, settings: Settings) -> Driver:
    """Return the driver: the embedded kernel, or an Agent-Zero that is described by the organisation's card."""
    site = Site(folder, Imports())
    try:
        if file.agent_connection.kind == "embedded":
            return build_organisation(_agent(file), _kernel_options(file, settings), site)
        return build_agentzero(_agent(file), _agentzero_options(file), site)
    except Invalid as error:
        field = _FIELDS.get(str(error.details.get("field")), "")
        raise ConfigurationError(f"{field}: {error.message}" if field else error.message, field=field) from None


def _agent(file: OrgFile) -> Agent:
    queue = file.task_queue
    limits = Limits(queue.max_concurrent, queue.max_queued, queue.task_timeout_seconds)
    return replace(blank_agent(SLUG), limits=limits, model=file.model)


def _kernel_options(file: OrgFile, settings: Settings) -> OrgOptions:
    return OrgOptions(
        file.org_dir,
        str(settings.data_dir.absolute() / "org"),
        file.roots or (),
        file.roles_dir,
        file.plan_library_path,
        None,
        file.reports_dir,
        file.model_base_url,
        file.model_key_from,
    )


def _agentzero_options(file: OrgFile) -> AgentZeroOptions:
    asked = file.agent_connection
    options = AgentZeroOptions(
        asked.agent_zero_url or DEFAULT_URL,
        key=asked.api_key,
        user=asked.user,
        password_from=asked.password_from,
        organisation=file.org_dir or ORGANISATIONS,
        reports=file.reports_dir,
        roles=file.roles_dir,
        workflows=file.plan_library_path,
        poll_s=file.salute_poll_interval_seconds,
        silence_s=file.task_queue.task_timeout_seconds,
    )
    return options if file.roots is None else replace(options, roots=file.roots)
