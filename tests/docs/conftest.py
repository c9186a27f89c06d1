from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS
from tests.docs.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """In a folder from which the examples are seen as from a copy of the repository."""
    (tmp_path / "examples").symlink_to(DOCS.parent / "examples")
    with Shell(tmp_path) as shell:
        yield shell
