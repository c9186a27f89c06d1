"""What an operator may set: in `parley.toml`, by `PARLEY_…` in the environment, or on the command line.

A value that nobody set is kept apart from one that was set to its default; `origins` tells which is which.
"""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from parley.errors import ConfigurationError

PREFIX = "PARLEY_"
FILE = "parley.toml"
TABLES = "agent"


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=PREFIX, toml_file=FILE, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8200, ge=0, le=65535, description="Port for HTTP; 0 takes a free one.")
    grpc_port: int | None = Field(
        None, ge=-1, le=65535, description="Port for gRPC; the one after `port` if unset, 0 takes a free one, -1 none."
    )
    public_grpc: str | None = Field(None, description="The host and port that cards show for gRPC, if they differ.")
    public_url: str | None = Field(None, description="The address that cards and links show, if it differs.")
    auth: Literal["local", "required", "none"] = Field(
        "local", description="Who needs credentials: everybody but this machine, everybody, or nobody at all."
    )
    api_key: Annotated[SecretStr, Field(min_length=1)] | None = Field(
        None, description="A key that is accepted beside those that `parley keys` makes."
    )
    cors_origins: list[str] = Field([], description="Web pages of these origins may ask too.")
    oidc_issuer: str | None = Field(None, description="OpenID Connect issuer whose tokens are accepted.")
    oidc_audience: str | None = Field(None, description="The audience that those tokens must name.")
    oidc_jwks_url: str | None = Field(
        None, description="The issuer's keys, when its discovery document is not to be used."
    )
    runtime_keys: dict[str, Annotated[SecretStr, Field(min_length=1)]] = Field(
        {}, description="Secrets that sign requests to /internal/v1, by key id."
    )
    runtime_max_ttl_s: int = Field(300, gt=0, description="How long the token of a signed request may live.")
    allow_hosts: list[str] = Field(
        [], description="Addresses that are not public and may be called all the same: names, host:port, IPs, networks."
    )
    secret_key_file: Path | None = Field(None, description="Keys that encrypt stored secrets, one per line.")
    signing_rotate_days: float | None = Field(
        90, ge=0, description="Replace the key that signs cards after so long; 0 for never."
    )
    signing_keep_days: float = Field(30, gt=0, description="How long a replaced key stays published.")
    github_api: str = Field("https://api.github.com", description="The GitHub whose tools are offered (`coding.v1`).")
    github_token: SecretStr | None = Field(None, description="The token that is shown to it.")
    github_token_file: Path | None = Field(None, description="A file with that token, read again for each call.")
    mcp: list[dict[str, Any]] = Field([], description="MCP servers whose tools any agent may name.")
    data_dir: Path = Field(Path(".parley"), description="Where the database, the blobs and the keys live.")
    store: Literal["sqlite", "postgres", "memory"] = Field(
        "sqlite", description="Where logs are kept; memory forgets at exit."
    )
    postgres_url: SecretStr | None = Field(None, description="Address of the PostgreSQL database.")
    postgres_writers: int = Field(1, ge=1, le=64, description="How many transactions write to it side by side.")
    postgres_batch: int = Field(512, ge=1, le=4096, description="How many runs one of them may hold.")
    max_sends_per_second: float | None = Field(
        None, gt=0, description="How many messages a principal may send in a second, in the long run."
    )
    max_sends_burst: int | None = Field(
        None, ge=1, description="How many of them may come at once; as many as in a second if unset."
    )
    max_unfinished: int | None = Field(None, ge=1, description="How many unfinished tasks a principal may have.")
    lease_s: float = Field(10.0, gt=0, description="How long a silent replica is believed to be alive.")
    keep_days: float | None = Field(None, gt=0, description="Forget the events of runs that ended so long ago.")
    blobs: str | None = Field(None, description="Where large bytes are kept: a directory or a URL (s3://…).")
    export_ttl_s: int = Field(3600, gt=0, description="How long the link to an exported conversation is good.")
    default_agent: str | None = Field(None, description="The agent behind `/`; the first one if unset.")
    agents: list[str] = Field(
        [],
        description="Definitions (YAML files, or folders of them), and Python files or modules with @agent functions.",
    )
    reload: bool = Field(True, description="Read definitions again when their files change.")
    max_body_bytes: int = Field(10 * 1024 * 1024, gt=0, description="Largest request.")
    max_payload_bytes: int = Field(1024 * 1024, gt=0, description="Largest event in a log.")
    drain_s: float = Field(
        0.0, ge=0, description="How long a server that is told to stop goes on answering that it is not ready."
    )
    cancel_grace_s: float = Field(5.0, ge=0, description="How long an agent may take to stop when canceled.")
    platform_name: str = Field(
        "Parley", description="How local agents behind a runtime are told this server is called."
    )
    platform_origin: str | None = Field(
        None, description="The domain that they are told with it; the host of `public_url` if unset."
    )
    edge_lease_s: float = Field(
        60.0, gt=0, description="How long a runtime may be silent about a task before somebody else may have it."
    )
    node_ttl_s: float = Field(60.0, gt=0, description="How long a node may be silent before it is offline.")
    node_ancestors: bool = Field(
        False, description="Whether nodes may also talk to those more than one level above or below them."
    )
    node_events_days: float = Field(30.0, gt=0, description="How long events and activities of nodes are kept.")
    node_pair_s: int = Field(300, gt=0, le=300, description="How long the pair token of a discovery is good.")
    proxy_timeout_s: float = Field(
        120.0, gt=0, le=86_400, description="How long a node that is called through this server may be silent."
    )
    proxy_max_request_bytes: int = Field(1024 * 1024, gt=0, description="Largest request to a node.")
    proxy_max_response_bytes: int = Field(
        10 * 1024 * 1024, gt=0, description="Largest answer of a node, and largest event of its streams."
    )
    delegation_timeout_s: float = Field(1800.0, gt=0, description="How long what a node delegates may take.")
    delegation_retry_s: float = Field(8.0, ge=0, description="When a delegation that found nobody is tried once more.")
    redis_url: SecretStr | None = Field(None, description="A Redis that knows where nodes are, beside the database.")
    console_session_hours: float = Field(
        12.0, gt=0, le=24 * 365, description="How long a browser stays signed in to the console."
    )
    cards: Literal["both", "1.0"] = Field(
        "both", description="Whose fields cards carry for clients that do not say which version of A2A they speak."
    )
    card_grpc: bool | None = Field(
        None, description="Whether cards list gRPC; if unset, they do where `grpc_port` or `public_grpc` is set."
    )
    otel: bool = Field(False, description="Report to OpenTelemetry, as its own environment variables say.")
    log_format: Literal["console", "json"] = Field("console", description="How log lines look.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="What is logged.")
    log_requests: bool = Field(
        False,
        description="Log every A2A request with the beginning of its message, and every change of a task's state.",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _File(settings_cls)


class _File(TomlConfigSettingsSource):
    """`parley.toml` without its `[[agent]]` tables: those are definitions, read elsewhere."""

    def __call__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__call__().items() if name != TABLES}


def load(**given: Any) -> Settings:
    """Read the settings; `given` are those of the command line, None where it said nothing."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(step) for step in first["loc"])
        raise ConfigurationError(f"Setting {name}: {first['msg']}", field=name) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{FILE}: {error}") from None


def blobs_location(settings: Settings) -> str:
    return settings.blobs or ("memory:" if settings.store == "memory" else str(settings.data_dir / "blobs"))


def postgres_url(settings: Settings) -> str:
    if settings.postgres_url is None:
        raise ConfigurationError("The store postgres needs the setting postgres_url.", field="postgres_url")
    return settings.postgres_url.get_secret_value()


def origins(settings: Settings) -> dict[str, str]:
    """Where each value came from: argument, environment, parley.toml, or default (nobody set it)."""
    in_file = tomllib.loads(Path(FILE).read_text("utf-8")) if Path(FILE).is_file() else {}
    in_environment = {name.upper() for name in os.environ}

    def origin(name: str) -> str:
        if name not in settings.model_fields_set:
            return "default"
        if (PREFIX + name).upper() in in_environment:
            return "environment"
        return FILE if name in in_file else "argument"

    return {name: origin(name) for name in Settings.model_fields}
