"""What the operator of a node may set: as arguments of `Node`, or by `PARLEY_NODE_…` in the environment."""

from pathlib import Path
from typing import Any, Literal, TypedDict

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from parley.errors import ConfigurationError
from parley.settings import Settings

PREFIX = "PARLEY_NODE_"


class NodeSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid")

    platform: str = Field(description="The address of the platform.", pattern=r"^https?://.+")
    id: str | None = Field(None, description="The node's UUID there; one is made up, and kept, if it is not given.")
    name: str | None = Field(None, description="How it is called, if nobody has created it before.")
    registration_token: SecretStr | None = Field(
        None, description="What came with it when it was created; needed the first time only."
    )
    token: SecretStr | None = Field(
        None, description="Its own token, if it is not the one that is kept: a new one from an operator."
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(0, ge=0, le=65535, description="Port for HTTP; 0 takes a free one.")
    url: str | None = Field(None, description="The address that peers call, if it differs from the one it listens on.")
    data_dir: Path = Field(Path(".parley-node"), description="Where its token, its tasks and its keys live.")
    store: Literal["sqlite", "memory"] = Field("sqlite", description="Where tasks are kept; memory forgets at exit.")
    introspect: bool = Field(
        False, description="Ask the platform about every call, so that a changed hierarchy counts at once."
    )
    issuer: str | None = Field(
        None, description="The platform's `public_url`, if the node reaches it under another address."
    )
    heartbeat_s: float = Field(30.0, gt=0, description="How often it says that it is alive.")


class Given(TypedDict, total=False):
    """The same as arguments of a function."""

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
    try:
        return NodeSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(step) for step in first["loc"])
        raise ConfigurationError(f"Node setting {field}: {first['msg']}", field=field) from None


def server_settings(node: NodeSettings, slug: str) -> Settings:
    """What the exchange of a node is opened with; what a node does not say is as `PARLEY_…` says."""
    return Settings.model_validate(
        {
            "data_dir": node.data_dir, "store": node.store, "default_agent": slug, "auth": "required",
            "host": node.host, "port": node.port, "mcp": [],
        }
    )  # fmt: skip
