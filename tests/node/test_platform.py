import os
from pathlib import Path

import pytest

from parley.errors import ConfigurationError
from parley.node.platform import IdentityFile, NodeIdentity

ID = "6f1c9c1e-7b0a-4d5e-9d43-0a4f3d1c2b11"


def test_a_token_is_kept_for_the_same_node_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    kept = IdentityFile(tmp_path / "data")
    os.umask(before := os.umask(0))
    try:
        kept.write(NodeIdentity(ID, "secret"))
    finally:
        os.umask(before)
    assert kept.path.stat().st_mode & 0o777 == 0o600
    assert kept.read(ID) == kept.read(None) == NodeIdentity(ID, "secret")
    other = IdentityFile(tmp_path / "data").read("0b8b3c52-9a55-4b0a-8a3f-d7a8a7c6d001")
    assert other.token is None
    assert [path.name for path in kept.path.parent.iterdir()] == ["node.json"]


def test_a_node_without_an_id_makes_one_up_once(tmp_path: Path) -> None:
    assert IdentityFile(tmp_path).read(None) == IdentityFile(tmp_path).read(None)


def test_a_file_that_is_no_such_thing_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"node\.json"):
        IdentityFile(tmp_path).read(None)
    assert (tmp_path / "node.json").read_text() == "{"
