"""What a definition says of an Agent-Zero: where it is, who we are to it, and how long it is waited for."""

import os
import posixpath
import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from parley.core.agents import Agent, Limits, plain_name
from parley.core.sanitising import REDACTED, sanitised_error
from parley.errors import Invalid
from parley.orgkernel.reading import Places

_SECRET = re.compile(r"[\x21-\x7e]+")
_SECONDS = ("timeout_s", "patience_s", "silence_s", "poll_s")
LIMITS = Limits(max_concurrent=1, max_queued=10, timeout_s=600.0)
"""One piece of work at a time, as contract 001 has it: one container, one model."""


class AgentZeroOptions(Struct, frozen=True):
    url: str
    key: str | None = None
    """The API key itself, where the file that names it is nobody else's to read."""
    key_from: str | None = None
    """The environment variable that holds the API key. With a key the API is used, without one a session."""
    key_file: str | None = None
    """Or the file that holds it, relative to the definition."""
    user: str | None = None
    """Who logs in, where Agent-Zero asks for a login."""
    password_from: str | None = None
    organisation: str | None = None
    """The directory with the active organisation of its kernel, relative to the definition; reports are below it."""
    reports: str | None = None
    """The directory in which its kernel keeps SALUTE reports, where it is another one."""
    roles: str | None = None
    workflows: str | None = None
    """Where its kernel keeps these, if not in the organisation's directory under their usual names."""
    roots: tuple[str, ...] = ("/a0/usr/workdir",)
    """Directories of Agent-Zero below which files may be fetched."""
    lifetime_hours: float = 24.0
    """How long Agent-Zero keeps a chat that was begun with the API key."""
    timeout_s: float = 30.0
    """How long one call may take."""
    patience_s: float = 60.0
    """How long an Agent-Zero that is gone in the middle of its work is waited for."""
    silence_s: float = 600.0
    """How long it may work without a sign of it."""
    poll_s: float = 1.0
    """How often it is asked how it goes, at the least."""


def blank_agentzero(slug: str) -> Agent:
    return Agent(
        slug, plain_name(slug), f"The agent {slug}.", limits=LIMITS, rescue="resume", input_modes=("*/*",),
        output_modes=("text/plain", "application/octet-stream"),
    )  # fmt: skip


def check_options(options: AgentZeroOptions) -> None:
    _check_url(options.url)
    for name in _SECONDS:
        if not 0 < getattr(options, name) <= 86_400:
            raise Invalid("expected seconds, more than 0 and at most a day", field=name)
    if not 0 < options.lifetime_hours <= 8760:
        raise Invalid("expected hours, more than 0 and at most a year", field="lifetime_hours")
    for root in options.roots:
        if posixpath.normpath(root) != root or not root.startswith("/"):
            raise Invalid("lists absolute directories, without .. and without a slash at the end", field="roots")
    if sum(one is not None for one in (options.key, options.key_from, options.key_file)) > 1:
        raise Invalid("name the key in key_from or in key_file, not in both", field="key_file")
    if (options.user is None) != (options.password_from is None):
        raise Invalid("a user needs a password_from, and the other way round", field="user")
    api_key(options)
    password(options)


def reports_folder(options: AgentZeroOptions) -> Path | None:
    if options.reports is not None:
        return Path(options.reports)
    return Path(options.organisation, "reports") if options.organisation is not None else None


def places_of(options: AgentZeroOptions) -> Places | None:
    """Where its organisation's files are, if it has one."""
    if options.organisation is None:
        return None
    roles, workflows = (Path(name) if name else None for name in (options.roles, options.workflows))
    return Places(Path(options.organisation), roles, workflows, None, reports_folder(options))


def _check_url(text: str) -> None:
    try:
        url = urlsplit(text)
        port_is_right = url.port is None or url.port > 0
    except ValueError:
        raise Invalid("cannot be read as an address", field="url") from None
    if url.scheme not in ("http", "https") or not url.hostname or not port_is_right or url.query or url.fragment:
        raise Invalid("expected an address with http or https, without a query", field="url")
    if url.username is not None or url.password is not None:
        raise Invalid("credentials do not belong in an address", field="url")


def api_key(options: AgentZeroOptions) -> str | None:
    """As it is at this moment: whoever renews it writes the file. What is wrong is told without repeating it."""
    if options.key is not None:
        return _checked(options.key.strip(), "key", "key")
    if options.key_file is not None:
        return _checked(_content(options.key_file), "key_file", options.key_file)
    return _variable(options.key_from, "key_from")


def password(options: AgentZeroOptions) -> str | None:
    return _variable(options.password_from, "password_from")


def without_secrets(error: str, options: AgentZeroOptions) -> str:
    """The text of an error without the credentials that are used here, and without what looks like a secret."""
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
        raise Invalid(f"there is nothing in {where}", field=field)
    if field != "password_from" and not _SECRET.fullmatch(secret):
        raise Invalid(f"what {where} holds cannot stand in a header", field=field)
    return secret
