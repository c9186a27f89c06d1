"""Settings of a node: arguments of `Node`, or environment variables `PARLEY_NODE_…`."""

from pathlib import Path
from typing import Any, Literal, TypedDict

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from parley.errors import ConfigurationError
from parley.settings import Settings

__all__ = ["NodeSettings", "load"]

PREFIX = "PARLEY_NODE_"


class NodeSettings(BaseSettings):
    """Settings of a node: arguments of `Node`, or environment variables `PARLEY_NODE_…`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid")

    platform: str = Field(description="URL of the platform.", pattern=r"^https?://.+")
    id: str | None = Field(None, description="UUID of the node. If not set, one is generated and stored.")
    name: str | None = Field(None, description="Name of the node, if it does not exist on the platform yet.")
    registration_token: SecretStr | None = Field(
        None, description="Registration token that was returned when the node was created; needed only the first time."
    )
    token: SecretStr | None = Field(
        None, description="The node's own token, to replace the stored one: a new one from an operator."
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(0, ge=0, le=65535, description="Port for HTTP; 0 selects a free one.")
    url: str | None = Field(
        None, description="URL that peers call, if it differs from the address that the node listens on."
    )
    data_dir: Path = Field(Path(".parley-node"), description="Directory for the node's token, tasks and keys.")
    store: Literal["sqlite", "memory"] = Field("sqlite", description="Store for tasks; memory loses them at exit.")
    introspect: bool = Field(
        True, description="Ask the platform about every call, so that a revoked or moved pair is refused at once."
    )
    issuer: str | None = Field(
        None, description="The platform's `public_url`, for a platform that does not name it at registration."
    )
    heartbeat_s: float = Field(30.0, gt=0, description="Interval of heartbeats, in seconds.")


class NodeArguments(TypedDict, total=False):
    """The node's settings as keyword arguments."""

    platform: str
    id: str | None
    name: str | None
    registration_token: str | None
    token: str | None
    host: str
    port: int
    url: str | None
    data_dir: Path | str
    store: Literal["sqlite", "memory"]
    introspect: bool
    issuer: str | None
    heartbeat_s: float


def load(**given: Any) -> NodeSettings:
    """Read the settings. Arguments override the environment."""
    try:
        return NodeSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(step) for step in first["loc"])
        raise ConfigurationError(f"Node setting {field}: {first['msg']}", field=field) from None


def server_settings(node: NodeSettings, slug: str) -> Settings:
    """Return the server settings for a node's exchange. Other settings are read from `PARLEY_…`."""
    return Settings.model_validate(
        {
            "data_dir": node.data_dir,
            "store": node.store,
            "default_agent": slug,
            "auth": "required",
            "host": node.host,
            "port": node.port,
            "mcp": [],
        }
    )
