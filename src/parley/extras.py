"""What is installed only when it is asked for: `pip install 'parley-a2a[NAME]'`."""

from collections.abc import Mapping
from importlib.util import find_spec

from parley.errors import ConfigurationError, Unsupported

MODULES: Mapping[str, tuple[str, ...]] = {
    "grpc": ("grpc", "a2a"),
    "langgraph": ("langgraph",),
    "llm": ("anthropic", "openai"),
    "mcp": ("mcp",),
    "otel": ("opentelemetry",),
    "pdf": ("typst",),
    "postgres": ("asyncpg",),
    "redis": ("redis",),
    "remote": ("a2a",),
}
"""The modules that show that an extra is there."""


class ExtraMissing(ConfigurationError, Unsupported):
    """Something is asked for that this installation was made without; `details['extra']` names what to install."""

    code = "extra_missing"


def has(extra: str, *only: str) -> bool:
    """Whether it is there, or at least those of its modules that are named."""
    return all(find_spec(module) is not None for module in only or MODULES[extra])


def check(extra: str, what: str, *only: str, **details: object) -> None:
    """Refuse what needs an extra that is not there; `what` begins the sentence."""
    if not has(extra, *only):
        raise ExtraMissing(
            f"{what} needs the extra {extra}: pip install 'parley-a2a[{extra}]'.", extra=extra, **details
        )
