import multiprocessing
import stat
from pathlib import Path

import pytest

from parley import telemetry
from parley.errors import ConfigurationError
from parley.security.secrets import Secrets, new_key


def test_a_secret_comes_back_and_is_not_readable_in_between(tmp_path: Path) -> None:
    path = tmp_path / "data" / "secret.key"
    kept = Secrets(path).encrypt(b"tell nobody")
    assert b"nobody" not in kept
    assert Secrets(path).decrypt(kept) == b"tell nobody"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["secret.key"]


def test_keys_rotate_by_adding_a_line(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    old = Secrets(path).encrypt(b"old")
    path.write_text(new_key() + "\n" + path.read_text())
    both = Secrets(path)
    assert both.decrypt(old) == b"old"
    new = both.encrypt(b"new")
    path.write_text(path.read_text().splitlines()[0])
    assert Secrets(path).decrypt(new) == b"new"
    with pytest.raises(ConfigurationError, match="secret_key_file"):
        Secrets(path).decrypt(old)


@pytest.mark.parametrize("content", ["", "short", "ä" * 44, "x" * 43 + "="])
def test_a_wrong_key_file_is_explained_without_its_content(tmp_path: Path, content: str) -> None:
    path = tmp_path / "secret.key"
    path.write_text(content)
    path.chmod(0o600)
    kept = Secrets(tmp_path / "other.key").encrypt(b"tell nobody")
    with pytest.raises(ConfigurationError) as raised:
        Secrets(path).decrypt(kept)
    assert str(path) in raised.value.message
    assert not content or content not in raised.value.message
    assert "nobody" not in raised.value.message


def test_a_missing_key_file_is_not_made_up_when_a_secret_is_to_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Secrets(tmp_path / "secret.key").decrypt(b"anything")
    assert not (tmp_path / "secret.key").exists()


def test_a_key_file_that_others_can_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    path.write_text(new_key())
    path.chmod(0o644)
    told: list[str] = []
    detach = telemetry.attach(lambda name, _: told.append(name))
    Secrets(path).encrypt(b"x")
    detach()
    assert told == ["secrets.readable_by_others"]


def _encrypt(path: Path) -> bytes:
    return Secrets(path).encrypt(b"x")


def test_processes_that_make_the_file_together_agree_on_it(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        kept = pool.map(_encrypt, [path] * 8)
    assert [Secrets(path).decrypt(one) for one in kept] == [b"x"] * 8
