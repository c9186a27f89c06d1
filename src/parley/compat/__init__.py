"""Entry points for programs that were written for other libraries or servers."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parley.compat.executor_app import durable

__all__ = ["durable"]


def __getattr__(name: str) -> object:
    """Import `durable` only when it is used: it needs the A2A SDK, which the rest of this package does not."""
    if name == "durable":
        from parley.extras import check

        check("remote", "parley.compat.durable")
        from parley.compat.executor_app import durable

        return durable
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
