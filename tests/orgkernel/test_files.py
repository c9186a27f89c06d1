"""Files: only below the roots, whatever a path, a link or a race says."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import OutsideRoots
from parley.orgkernel.files import INLINE_BYTES, MAX_BYTES, Roots, marks


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "app.py").write_text("print('hé')\n")
    (tmp_path / "secret.txt").write_text("secret")
    return root


def test_a_file_is_read_by_either_spelling(root: Path) -> None:
    roots = Roots([root])
    for path in ("inner/app.py", str(root / "inner" / "app.py"), "inner/./app.py"):
        made = roots.read(path)
        assert (made.name, made.path, made.part.text) == ("app.py", "inner/app.py", "print('hé')\n")
        assert b'"mimeType":"text/x-python"' in bytes(made.metadata)


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "/etc/passwd", "inner/../../secret.txt", "inner/../inner/app.py", "", "a\0b", ".", "inner", "no"],
)
def test_what_is_no_file_below_the_root_is_refused(root: Path, path: str) -> None:
    with pytest.raises(OutsideRoots):
        Roots([root]).read(path)


def test_links_are_not_followed(root: Path, tmp_path: Path) -> None:
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "folder").symlink_to(tmp_path)
    (root / "inner" / "round").symlink_to(root / "inner" / "app.py")
    os.mkfifo(root / "pipe")
    roots = Roots([root])
    for path in ("link.txt", "folder/secret.txt", "inner/round", "pipe"):
        with pytest.raises(OutsideRoots):
            roots.read(path)
    for path in ("link.txt", "folder/secret.txt", "folder/new.txt"):
        with pytest.raises(OutsideRoots):
            roots.inside(path)
        with pytest.raises(OutsideRoots):
            roots.write(root, path, b"x")
    assert (tmp_path / "secret.txt").read_text() == "secret"
    assert not (tmp_path / "new.txt").exists()


def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(root: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "app.py").write_text("outside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (root / "inner").rename(root / "kept")
            (root / "inner").symlink_to(tmp_path / "other")
            (root / "inner").unlink()
            (root / "kept").rename(root / "inner")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(300):
            try:
                assert Roots([root]).read("inner/app.py").part.text == "print('hé')\n"
            except OutsideRoots:
                continue
    finally:
        stop.set()
        thread.join()


def test_text_is_text_and_the_rest_is_bytes(root: Path) -> None:
    (root / "a.bin").write_bytes(b"\x00\x01")
    (root / "odd.txt").write_bytes(b"\xff\xfe")
    (root / "long.txt").write_bytes(b"x" * (INLINE_BYTES + 1))
    (root / "page.svg").write_text("<svg/>")
    roots = Roots([root])
    assert roots.read("a.bin").part.raw == b"\x00\x01"
    assert roots.read("odd.txt").part.raw == b"\xff\xfe"
    assert len(roots.read("long.txt").part.raw or b"") == INLINE_BYTES + 1
    assert roots.read("page.svg").part.text == "<svg/>"
    assert b'"encoding":"base64"' in bytes(roots.read("a.bin").metadata)


def test_a_file_too_large_for_anybody_is_only_named(root: Path) -> None:
    with (root / "huge.bin").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    made = Roots([root]).read("huge.bin")
    assert made.content is None
    assert "not included" in (made.part.text or "")


def test_what_is_written_is_there_whole_and_shows(root: Path) -> None:
    before = marks(root)
    path = Roots([root]).write(root / "made", "deep/notes.md", b"hello")
    assert path.read_bytes() == b"hello"
    assert set(marks(root)) - set(before) == {str(path)}
    assert list(path.parent.iterdir()) == [path]


@given(st.text(max_size=40))
def test_no_path_leads_out(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    root = tmp_path_factory.getbasetemp() / "only"
    root.mkdir(exist_ok=True)
    try:
        found = Roots([root]).inside(path)
    except (OutsideRoots, OSError):
        return
    assert found.is_relative_to(root.resolve())
