"""The configuration file of contract 001: wrapped in `a2a_server` or not, in its own spelling or its origin's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from parley.errors import ConfigurationError
from parley.orgkernel.shapes import is_object, members_of

WRAPPER = "a2a_server"
DEFAULT_URL = "http://localhost:5000"
"""Where the contract expects Agent-Zero."""
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
"""What the contract's origin calls things."""


class Authentication(Struct, frozen=True):
    """Nothing said is not `none`: then only this machine may ask."""

    scheme: str | None = None
    api_key: str | None = None
    issuer: str | None = None
    audience: str | None = None
    jwks_url: str | None = None

    @property
    def kind(self) -> Scheme | None:
        return None if self.scheme is None else _one_of(self.scheme, _SCHEMES, "authentication.scheme")


class Connection(Struct, frozen=True):
    method: str | None = None
    agent_zero_url: str | None = None
    api_key: str | None = None
    user: str | None = None
    password_from: str | None = None

    @property
    def kind(self) -> Method:
        """As it says; where it does not, an address is that of an Agent-Zero."""
        if self.method is not None:
            return _one_of(self.method, _METHODS, "agent_connection.method")
        return "embedded" if self.agent_zero_url is None else "direct"


class Queue(Struct, frozen=True):
    max_concurrent: int = 1
    max_queued: int = 10
    task_timeout_seconds: float = 600.0


class OrgFile(Struct, frozen=True):
    """`public_url`, `data_dir`, `roots` and `model` are additions to the contract's fields."""

    enabled: bool = True
    host: str | None = None
    port: int | None = None
    public_url: str | None = None
    authentication: Authentication = Authentication()
    agent_connection: Connection = Connection()
    task_queue: Queue = Queue()
    salute_poll_interval_seconds: float = 2.0
    org_dir: str | None = None
    reports_dir: str | None = None
    roles_dir: str | None = None
    plan_library_path: str | None = None
    data_dir: str | None = None
    roots: tuple[str, ...] | None = None
    """Folders whose files may be read, changed and delivered."""
    model: str | None = None
    model_key_from: str | None = None
    model_base_url: str | None = None


_TABLES: dict[str, type[Struct]] = {
    "": OrgFile, "authentication": Authentication, "agent_connection": Connection, "task_queue": Queue,
}  # fmt: skip


def read_orgfile(path: Path) -> tuple[OrgFile, list[str]]:
    """What the file says, and the fields in it that mean nothing here."""
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
        raise ConfigurationError(f"{name}: expected a JSON object.")
    whole = members_of(value)
    fields, beside = (members_of(whole[WRAPPER]), set(whole) - {WRAPPER}) if WRAPPER in whole else (whole, set[str]())
    said = _spelled(fields)
    try:
        found = msgspec.convert(said, OrgFile)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{name}: {error}.") from None
    return found, [*sorted(beside), *_unknown(said)]


def _spelled(fields: dict[str, object]) -> dict[str, object]:
    """In the contract's spelling; what is null is not said."""
    spelled: dict[str, object] = {}
    for name, value in fields.items():
        if value is None:
            continue
        spelled[_SPELLINGS.get(name, name)] = _spelled(members_of(value)) if is_object(value) else value
    return spelled


def _unknown(said: dict[str, object]) -> Iterator[str]:
    """Names that begin with an underscore are remarks."""
    for table, kind in _TABLES.items():
        given = said.get(table, {}) if table else said
        for name in members_of(given):
            if name not in kind.__struct_fields__ and not name.startswith("_"):
                yield f"{table}.{name}" if table else name


def _one_of(given: str, known: dict[str, Kind], field: str) -> Kind:
    found = known.get(given.strip().lower().replace("-", "_"))
    if found is None:
        names = ", ".join(dict.fromkeys(known.values()))
        raise ConfigurationError(f"{field}: expected one of {names}, not {given!r}.", field=field)
    return found
