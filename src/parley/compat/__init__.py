"""Other people's entry points, mapped onto ours."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parley.compat.executors.app import durable

__all__ = ["durable"]


def __getattr__(name: str) -> object:
    """`durable` needs the SDK, which the others here do without."""
    if name == "durable":
        from parley.extras import check

        check("remote", "parley.compat.durable")
        from parley.compat.executors.app import durable

        return durable
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
