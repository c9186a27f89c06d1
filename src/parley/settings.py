"""Settings of an operator: from `parley.toml`, from `PARLEY_…` environment variables, or from the command line.

A setting that was not set is distinguished from one that was set to its default; `origins` returns which is which.
"""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, SecretStr, ValidationError
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
MOST_WORKERS = 256


class ModelPrice(BaseModel, extra="forbid"):
    """Prices of a model in USD per million tokens. Cached tokens cost as much as others unless `cached` is set."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float | None = Field(None, ge=0)


class LimitSettings(BaseModel, extra="forbid"):
    """Limits of a principal, a group, an agent or a key: requests, tokens and cost in USD per day and month (UTC), and
    of each tree of tasks."""

    per_second: float | None = None
    burst: int | None = None
    unfinished: int | None = None
    tokens_day: int | None = None
    tokens_month: int | None = None
    cost_day: float | None = None
    cost_month: float | None = None
    tree_tokens: int | None = None
    tree_cost: float | None = None
    tree_depth: int | None = None
    tree_runs: int | None = None


class Settings(BaseSettings):
    """Settings of a server. Those that are not given come from the environment and `parley.toml`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, toml_file=FILE, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8200, ge=0, le=65535, description="Port for HTTP; 0 picks a free port.")
    grpc_port: int | None = Field(
        None, ge=-1, le=65535, description="Port for gRPC; `port` + 1 if unset, 0 picks a free port, -1 disables gRPC."
    )
    public_grpc: str | None = Field(None, description="Host and port that cards show for gRPC, if they differ.")
    public_url: str | None = Field(None, description="Base URL that cards and links show, if it differs.")
    auth: Literal["local", "required", "none"] = Field(
        "local", description="Callers that need credentials: all but this machine, all, or none."
    )
    api_key: Annotated[SecretStr, Field(min_length=1)] | None = Field(
        None, description="API key that is accepted in addition to those that `parley keys` creates."
    )
    cors_origins: list[str] = Field([], description="Origins whose web pages may call this server.")
    oidc_issuer: str | None = Field(None, description="OpenID Connect issuer whose tokens are accepted.")
    oidc_audience: str | None = Field(
        None, description="Audience that tokens of `oidc_issuer` must name; `oidc_client_id` if unset."
    )
    oidc_client_id: str | None = Field(
        None, min_length=1, description="Client of the issuer as which the console signs users in."
    )
    oidc_client_secret: Annotated[SecretStr, Field(min_length=1)] | None = Field(
        None, description="Secret of `oidc_client_id`; none for a public client."
    )
    oidc_cli_client_id: str | None = Field(
        None, min_length=1, description="Public client of the issuer for `parley login`; `oidc_client_id` if unset."
    )
    oidc_scopes: list[str] = Field(
        ["openid", "profile", "email"], description="Scopes that are asked for when users sign in."
    )
    oidc_name: str | None = Field(
        None, description="Name of the issuer on the console's sign-in page; its host if unset."
    )
    oidc_jwks_url: str | None = Field(
        None, description="URL of the issuer's keys, if its discovery document must not be used."
    )
    oidc_groups_claim: str = Field(
        "groups", min_length=1, description="Claim of the issuer's tokens that names groups."
    )
    oidc_default_role: Literal["admin", "operator", "user", "reader", "none"] = Field(
        "user", description="Role of the issuer's users whose groups have none; `none` refuses them."
    )
    role_groups: dict[Literal["admin", "operator", "user", "reader"], list[str]] = Field(
        {}, description="Groups of the issuer's users that have a role, by role."
    )
    audit_keep_days: float | None = Field(
        365, gt=0, description="Days after which entries of the audit log are deleted."
    )
    runtime_keys: dict[str, Annotated[SecretStr, Field(min_length=1)]] = Field(
        {}, description="Secrets that sign requests to /internal/v1, by key id."
    )
    runtime_max_ttl_s: int = Field(300, gt=0, description="Maximum lifetime of a signed request's token, in seconds.")
    allow_hosts: list[str] = Field(
        [], description="Private addresses that the server may call: names, host:port, IPs, networks."
    )
    secret_key_file: Path | None = Field(
        None, description="File with the keys that encrypt stored secrets, one per line."
    )
    signing_rotate_days: float | None = Field(
        90, ge=0, description="Days after which the key that signs cards is replaced; 0 for never."
    )
    signing_keep_days: float = Field(30, gt=0, description="Days for which a replaced key stays published.")
    github_api: str = Field("https://api.github.com", description="URL of the GitHub API for the tools of `coding.v1`.")
    github_token: SecretStr | None = Field(None, description="Token for the GitHub API.")
    github_token_file: Path | None = Field(
        None, description="File with the token for the GitHub API, read again for each call."
    )
    mcp: list[dict[str, Any]] = Field([], description="MCP servers whose tools any agent may use by name.")
    data_dir: Path = Field(Path(".parley"), description="Directory of the database, the blobs and the keys.")
    store: Literal["sqlite", "postgres", "memory"] = Field(
        "sqlite", description="Store of the logs; `memory` loses them at exit."
    )
    postgres_url: SecretStr | None = Field(None, description="URL of the PostgreSQL database.")
    postgres_writers: int = Field(
        1, ge=1, le=64, description="Number of transactions that write to PostgreSQL in parallel."
    )
    postgres_batch: int = Field(512, ge=1, le=4096, description="Maximum number of runs in one PostgreSQL transaction.")
    nats_url: SecretStr | None = Field(
        None, description="URL of a NATS server that carries the signals between replicas, instead of PostgreSQL."
    )
    max_sends_per_second: float | None = Field(
        None, gt=0, description="Messages that a principal may send per second, on average."
    )
    max_sends_burst: int | None = Field(
        None, ge=1, description="Messages that a principal may send at once; `max_sends_per_second` if unset."
    )
    max_unfinished: int | None = Field(None, ge=1, description="Maximum number of unfinished tasks of a principal.")
    limits: dict[str, LimitSettings] = Field(
        {}, description="Limits and budgets by subject: `principal:NAME`, `group:NAME`, `agent:SLUG` or `key:NAME`."
    )
    lease_s: float = Field(10.0, gt=0, description="Seconds after which a replica that is silent counts as dead.")
    keep_days: float | None = Field(None, gt=0, description="Days after which the events of an ended run are deleted.")
    blobs: str | None = Field(None, description="Storage of large contents: a directory or a URL (s3://…).")
    export_ttl_s: int = Field(
        3600, gt=0, description="Seconds for which the link to an exported conversation is valid."
    )
    default_agent: str | None = Field(None, description="Slug of the agent at `/`; the first agent if unset.")
    agents: list[str] = Field(
        [],
        description="Definitions (YAML files, or folders of them), and Python files or modules with @agent functions.",
    )
    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)] | Literal["auto"] = Field(
        1, description="Number of processes that serve on this machine, on PostgreSQL; `auto` for one per core."
    )
    roll_s: float = Field(
        30.0, ge=0, description="Seconds for which a worker that is replaced may finish its turns before they move."
    )
    reload: bool = Field(True, description="Reload definitions when their files change.")
    max_body_bytes: int = Field(10 * 1024 * 1024, gt=0, description="Maximum size of a request.")
    max_payload_bytes: int = Field(1024 * 1024, gt=0, description="Maximum size of an event in a log.")
    drain_s: float = Field(
        0.0, ge=0, description="Seconds for which a stopping server reports not ready before it hands over work."
    )
    cancel_grace_s: float = Field(5.0, ge=0, description="Seconds that an agent may take to stop when canceled.")
    platform_name: str = Field("Parley", description="Name of this server, as shown to local agents behind a runtime.")
    platform_origin: str | None = Field(
        None, description="Domain of this server, as shown to those agents; the host of `public_url` if unset."
    )
    edge_lease_s: float = Field(
        60.0, gt=0, description="Seconds of silence after which a runtime's task returns to the queue."
    )
    node_ttl_s: float = Field(60.0, gt=0, description="Seconds of silence after which a node is offline.")
    node_ancestors: bool = Field(
        False, description="Let nodes also call nodes more than one level above or below them."
    )
    node_events_days: float = Field(30.0, gt=0, description="Days for which events and activities of nodes are kept.")
    node_pair_s: int = Field(300, gt=0, le=300, description="Seconds for which the pair token of a discovery is valid.")
    proxy_timeout_s: float = Field(
        120.0, gt=0, le=86_400, description="Seconds that a node called through this server may be silent."
    )
    proxy_max_request_bytes: int = Field(1024 * 1024, gt=0, description="Maximum size of a request to a node.")
    proxy_max_response_bytes: int = Field(
        10 * 1024 * 1024, gt=0, description="Maximum size of a node's response, and of an event in its streams."
    )
    delegation_timeout_s: float = Field(1800.0, gt=0, description="Seconds that a delegation of a node may take.")
    delegation_retry_s: float = Field(
        8.0, ge=0, description="Seconds after which a delegation whose target did not answer is retried once."
    )
    redis_url: SecretStr | None = Field(None, description="URL of a Redis that caches the addresses of nodes.")
    console_session_hours: float = Field(
        12.0, gt=0, le=24 * 365, description="Hours for which a browser stays signed in to the console."
    )
    console_idle_hours: float | None = Field(
        4.0, gt=0, description="Hours without a request after which a console session ends."
    )
    long_poll_s: float = Field(
        30.0,
        ge=0,
        le=3600,
        description="Seconds for which `GetTask` with `currentGeneration` waits for a change at most (A2A 1.1).",
    )
    cards: Literal["both", "1.0"] = Field(
        "both", description="A2A versions whose fields cards contain for clients that do not name their version."
    )
    card_grpc: bool | None = Field(
        None, description="List gRPC in cards; if unset, only when `grpc_port` or `public_grpc` is set."
    )
    prices: dict[str, ModelPrice] = Field(
        {},
        description="Prices of models in USD per million tokens: `input`, `output` and `cached`, by the model's name.",
    )
    otel: bool = Field(False, description="Export to OpenTelemetry, configured by its own environment variables.")
    log_format: Literal["console", "json"] = Field("console", description="Format of log lines.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is logged.")
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
        # Looking up every setting takes longer than all else that a test of an agent in process does.
        in_environment = any(name.upper().startswith(PREFIX) for name in os.environ)
        return init_settings, *((env_settings,) if in_environment else ()), _File(settings_cls)


class _File(TomlConfigSettingsSource):
    """`parley.toml` without its `[[agent]]` tables: those are definitions, which another module reads."""

    def __call__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__call__().items() if name != TABLES}


def load(**given: Any) -> Settings:
    """Read the settings. `given` are the values of the command line; None for options that were not given."""
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
    """Return the source of each value: argument, environment, parley.toml, or default (not set)."""
    in_file = tomllib.loads(Path(FILE).read_text("utf-8")) if Path(FILE).is_file() else {}
    in_environment = {name.upper() for name in os.environ}

    def origin(name: str) -> str:
        if name not in settings.model_fields_set:
            return "default"
        if (PREFIX + name).upper() in in_environment:
            return "environment"
        return FILE if name in in_file else "argument"

    return {name: origin(name) for name in Settings.model_fields}
