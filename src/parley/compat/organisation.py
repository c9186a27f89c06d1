"""The organisation's server of contract 001: its file becomes settings and one driver, and our server does the rest."""

import os
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from parley.compat.orgfile import DEFAULT_URL, OrgFile
from parley.core.agents import Agent, Limits
from parley.definitions.agentzeros import build_agentzero
from parley.definitions.imports import Imports
from parley.definitions.kind import Site
from parley.definitions.organisations import OrgOptions, build_organisation
from parley.drivers.agentzero import AgentZeroOptions
from parley.engine.ports import Driver
from parley.errors import ConfigurationError, Invalid
from parley.orgkernel.card import blank_agent
from parley.settings import PREFIX, Settings, load

SLUG = "org"
DATA = "a2a_data"
ORGANISATIONS = "/a0/usr/organizations"
"""Where Agent-Zero keeps them."""
_FIELDS = {
    "folder": "org_dir", "organisation": "org_dir", "reports": "reports_dir", "roles": "roles_dir",
    "workflows": "plan_library_path", "roots": "roots", "key_from": "model_key_from", "base_url": "model_base_url",
    "url": "agent_connection.agent_zero_url", "key": "agent_connection.api_key", "user": "agent_connection.user",
    "password_from": "agent_connection.password_from", "poll_s": "salute_poll_interval_seconds",
    "max_concurrent": "task_queue.max_concurrent", "max_queued": "task_queue.max_queued",
    "timeout_s": "task_queue.task_timeout_seconds",
}  # fmt: skip
"""What the file calls the options of the drivers."""


def settings_of(file: OrgFile, folder: Path, **given: Any) -> Settings:
    """What was given on the command line, else what the environment says, else the file, which lies in `folder`."""
    said = {
        "host": file.host, "port": file.port, "public_url": file.public_url, "log_requests": True,
        "data_dir": folder / (file.data_dir or DATA), "default_agent": SLUG, **_authentication(file),
    }  # fmt: skip
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
                "auth": "required", "oidc_issuer": said.issuer, "oidc_audience": said.audience,
                "oidc_jwks_url": said.jwks_url, "api_key": said.api_key,
            }  # fmt: skip


def driver_of(file: OrgFile, folder: Path, settings: Settings) -> Driver:
    """The embedded kernel, or an Agent-Zero behind the organisation's card."""
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
        file.org_dir, str(settings.data_dir.absolute() / "org"), file.roots or (), file.roles_dir,
        file.plan_library_path, None, file.reports_dir, file.model_base_url, file.model_key_from,
    )  # fmt: skip


def _agentzero_options(file: OrgFile) -> AgentZeroOptions:
    asked = file.agent_connection
    options = AgentZeroOptions(
        asked.agent_zero_url or DEFAULT_URL, key=asked.api_key, user=asked.user, password_from=asked.password_from,
        organisation=file.org_dir or ORGANISATIONS, reports=file.reports_dir, roles=file.roles_dir,
        workflows=file.plan_library_path, poll_s=file.salute_poll_interval_seconds,
        silence_s=file.task_queue.task_timeout_seconds,
    )  # fmt: skip
    return options if file.roots is None else replace(options, roots=file.roots)
