"""Optional dependencies (extras), installed with `pip install 'parley-a2a[NAME]'`."""

import sys
from collections.abc import Mapping
from importlib.util import find_spec

from parley.errors import ConfigurationError, Unsupported

MODULES: Mapping[str, tuple[str, ...]] = {
    "grpc": ("grpc", "a2a"),
    "langgraph": ("langgraph",),
    "llm": ("anthropic", "openai"),
    "mcp": ("mcp",),
    "nats": ("nats",),
    "openai-agents": ("agents",),
    "otel": ("opentelemetry",),
    "pdf": ("typst",),
    "postgres": ("asyncpg",),
    "pydantic-ai": ("pydantic_ai",),
    "redis": ("redis",),
    "remote": ("a2a",),
}
"""The modules that each extra installs."""


class ExtraMissing(ConfigurationError, Unsupported):
    """A feature needs an extra that is not installed; `details['extra']` names the extra to install."""

    code = "extra_missing"


POSIX = frozenset({"fcntl", "grp", "pwd", "resource", "termios", "uvloop"})
"""Modules that Python has only on Linux and macOS, or that exist only for them."""


class PlatformUnsupported(ConfigurationError, Unsupported):
    """A part of Parley does not run on this operating system; docs/install.md says what does."""

    code = "platform_unsupported"


def explained(error: ModuleNotFoundError) -> Exception:
    """Return the error that a missing module means to a user: one of POSIX names what runs where."""
    if error.name not in POSIX:
        return error
    return PlatformUnsupported(
        f"This part of Parley runs on Linux and macOS: {sys.platform} has no {error.name}. "
        "On Windows use WSL or a container; docs/install.md lists what runs where.",
        module=error.name,
    )


def has(extra: str, *only: str) -> bool:
    """Return whether all modules of an extra are installed, or the modules in `only` if any are given."""
    return all(find_spec(module) is not None for module in only or MODULES[extra])


def check(extra: str, what: str, *only: str, **details: object) -> None:
    """Raise ExtraMissing if an extra is not installed; `what` is the subject of the message."""
    if not has(extra, *only):
        raise ExtraMissing(
            f"{what} needs the extra {extra}: pip install 'parley-a2a[{extra}]'.", extra=extra, **details
        )
