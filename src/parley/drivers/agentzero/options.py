"""Options of an Agent-Zero in a definition: its URL, our credentials, its files and the timeouts."""

import os
import posixpath
import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from parley.errors import Invalid
from parley.orgkernel.loader import OrganisationPaths
from parley.runs.rules.agents import Agent, Limits, plain_name
from parley.tools.rules.redaction import REDACTED, sanitised_error

_SECRET = re.compile(r"[\x21-\x7e]+")
_SECONDS = ("timeout_s", "patience_s", "silence_s", "poll_s")
LIMITS = Limits(max_concurrent=1, max_queued=10, timeout_s=600.0)
"""One task at a time, as in the organisation contract (001): one container, one model."""


class AgentZeroOptions(Struct, frozen=True):
    url: str
    key: str | None = None
    """The API key itself, for a file that no other user can read."""
    key_from: str | None = None
    """Name of the environment variable that holds the API key. With a key the API is used, without one a session."""
    key_file: str | None = None
    """Path of a file that holds the API key, relative to the definition."""
    user: str | None = None
    """User name for the login, if Agent-Zero requires one."""
    password_from: str | None = None
    organisation: str | None = None
    """Directory with the active organisation of its kernel, relative to the definition. Reports are below it."""
    reports: str | None = None
    """Directory in which its kernel writes SALUTE reports, if it is not below `organisation`."""
    roles: str | None = None
    workflows: str | None = None
    """Paths of its kernel's roles and workflows, if they are not below `organisation` under their usual names."""
    roots: tuple[str, ...] = ("/a0/usr/workdir",)
    """Directories in Agent-Zero. Only files below them may be fetched."""
    lifetime_hours: float = 24.0
    """Time for which Agent-Zero keeps a chat that was started with the API key."""
    timeout_s: float = 30.0
    """Timeout of one call."""
    patience_s: float = 60.0
    """Time to wait for an Agent-Zero that becomes unreachable in the middle of its work."""
    silence_s: float = 600.0
    """Longest time that it may work without visible progress."""
    poll_s: float = 1.0
    """Longest pause between two polls."""


def blank_agentzero(slug: str) -> Agent:
    return Agent(
        slug,
        plain_name(slug),
        f"The agent {slug}.",
        limits=LIMITS,
        rescue="resume",
        input_modes=("*/*",),
        output_modes=("text/plain", "application/octet-stream"),
    )


def check_options(options: AgentZeroOptions) -> None:
    _check_url(options.url)
    for name in _SECONDS:
        if not 0 < getattr(options, name) <= 86_400:
            raise Invalid("must be more than 0 and at most 86400 seconds (one day)", field=name)
    if not 0 < options.lifetime_hours <= 8760:
        raise Invalid("must be more than 0 and at most 8760 hours (one year)", field="lifetime_hours")
    for root in options.roots:
        if posixpath.normpath(root) != root or not root.startswith("/"):
            raise Invalid("must list absolute directories, without .. and without a slash at the end", field="roots")
    if sum(one is not None for one in (options.key, options.key_from, options.key_file)) > 1:
        raise Invalid("only one of key, key_from and key_file can be set", field="key_file")
    if (options.user is None) != (options.password_from is None):
        raise Invalid("user and password_from must be set together", field="user")
    api_key(options)
    password(options)


def reports_folder(options: AgentZeroOptions) -> Path | None:
    if options.reports is not None:
        return Path(options.reports)
    return Path(options.organisation, "reports") if options.organisation is not None else None


def places_of(options: AgentZeroOptions) -> OrganisationPaths | None:
    """Return the paths of its organisation's files; None if it has no organisation."""
    if options.organisation is None:
        return None
    roles, workflows = (Path(name) if name else None for name in (options.roles, options.workflows))
    return OrganisationPaths(Path(options.organisation), roles, workflows, None, reports_folder(options))


def _check_url(text: str) -> None:
    try:
        url = urlsplit(text)
        port_is_right = url.port is None or url.port > 0
    except ValueError:
        raise Invalid("is not a valid URL", field="url") from None
    if url.scheme not in ("http", "https") or not url.hostname or not port_is_right or url.query or url.fragment:
        raise Invalid("must be an http or https URL without query or fragment", field="url")
    if url.username is not None or url.password is not None:
        raise Invalid("must not contain credentials", field="url")


def api_key(options: AgentZeroOptions) -> str | None:
    """Return the current API key. A key file is read each time, so that a renewed key is used at once. Errors never
    contain the key."""
    if options.key is not None:
        return _checked(options.key.strip(), "key", "key")
    if options.key_file is not None:
        return _checked(_content(options.key_file), "key_file", options.key_file)
    return _variable(options.key_from, "key_from")


def password(options: AgentZeroOptions) -> str | None:
    return _variable(options.password_from, "password_from")


def without_secrets(error: str, options: AgentZeroOptions) -> str:
    """Remove our credentials, and anything that looks like a secret, from the text of an error."""
    for secret_of in (api_key, password):
        with suppress(Invalid):
            if secret := secret_of(options):
                error = error.replace(secret, REDACTED)
    return sanitised_error(error)


def _variable(name: str | None, field: str) -> str | None:
    return None if name is None else _checked(os.environ.get(name, "").strip(), field, name)


def _content(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"the file {path} cannot be read ({type(error).__name__})", field="key_file") from None


def _checked(secret: str, field: str, where: str) -> str:
    if not secret:
        raise Invalid(f"{where} is empty or not set", field=field)
    if field != "password_from" and not _SECRET.fullmatch(secret):
        raise Invalid(f"the value of {where} has characters that a header cannot contain", field=field)
    return secret
