"""Commands of nodes: a message is an argument or nothing."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import CommandRefused, OutsideRoots
from parley.orgkernel.commands import (
    MAX_PATH,
    MAX_READ,
    CommandInput,
    arguments,
    check_command,
    names_in,
    paths_in,
    runs_in,
)
from parley.orgkernel.files import Roots


def given_by(folder: Path, *texts: str) -> CommandInput:
    (folder / "org" / "tools").mkdir(parents=True, exist_ok=True)
    (folder / "work").mkdir(exist_ok=True)
    return CommandInput(texts, folder / "work", folder / "org", Roots([folder / "work", folder / "shared"]))


def test_placeholders_become_arguments(tmp_path: Path) -> None:
    said = given_by(tmp_path, "make a module called door_bell, see notes.txt")
    command = ("{python}", "{organisation}/tools/make.py", "{work}/out.txt", "{name}", "{path}", "{text}", "plain")
    assert arguments(command, said) == (
        sys.executable, str(tmp_path / "org/tools/make.py"), str(tmp_path / "work/out.txt"), "door_bell",
        str(tmp_path / "work/notes.txt"), "make a module called door_bell, see notes.txt", "plain",
    )  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("",),
        ("sh", "-c", "ls"),
        ("/bin/bash", "script"),
        ("{text}",),
        ("{path}",),
        ("{python}", "-c", "{text}"),
        ("{python}", "-m", "{name}"),
        ("{python}", "--option={text}"),
        ("{python}", "print({name})"),
        ("{python}", "x{work}"),
        ("{python}", "a\0b"),
        ("env", "{text}"),
        ("/usr/bin/xargs", "-n", "1", "{name}"),
        ("timeout", "5", "bash", "-c", "ls"),
    ],
)
def test_what_could_run_a_message_is_refused(command: tuple[str, ...]) -> None:
    with pytest.raises(CommandRefused):
        check_command(command)


def test_a_program_may_be_run_by_another_one() -> None:
    check_command(("timeout", "5", "git", "-C", "{work}", "status"))


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandRefused, match="program surely-not-there is not installed"):
        arguments(("surely-not-there",), given_by(tmp_path, "x"))
    with pytest.raises(CommandRefused, match="is outside"):
        arguments(("{python}", "{organisation}/../../x.py"), given_by(tmp_path, "x"))


@pytest.mark.parametrize("text", ["fix /nonexistent/critical/app.py", "see ../../etc/passwd", "read /etc/passwd"])
def test_a_path_outside_the_roots_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(OutsideRoots, match="outside the folders"):
        arguments(("{python}", "{path}"), given_by(tmp_path, text))


def test_the_newest_words_name_the_file_and_a_shared_one_is_found(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "app.py").touch()
    said = given_by(tmp_path, "it is app.py", "fix /nonexistent/app.py")
    assert arguments(("{python}", "{path}"), said)[1] == str(tmp_path / "shared" / "app.py")
    assert arguments(("{python}", "{path?}"), given_by(tmp_path, "list everything"))[1] == str(tmp_path / "work")
    with pytest.raises(OutsideRoots, match="names no file"):
        arguments(("{python}", "{path}"), given_by(tmp_path, "list everything"))


@given(st.text(max_size=200))
def test_any_message_stays_one_argument_that_is_no_option(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    said = given_by(tmp_path_factory.getbasetemp() / "one", text)
    _, words, name = arguments(("{python}", "{text}", "{name}"), said)
    assert not words.startswith("-")
    assert "\n" not in words
    assert "\0" not in words
    assert not name.startswith("-")
    assert "/" not in name
    try:
        _, path = arguments(("{python}", "{path?}"), said)
    except OutsideRoots:
        return
    assert Path(path).is_relative_to(said.work) or Path(path).is_relative_to(said.roots.folders[1])


def test_ten_megabytes_are_read_in_no_time(tmp_path: Path) -> None:
    for text in ("a" * 10_000_000, "a." * 5_000_000, "/a" * 5_000_000, "named " * 2_000_000, "../" * 3_000_000):
        list(paths_in(text))
        list(names_in(text))
        assert len(arguments(("{python}", "{text}"), given_by(tmp_path, text))[1]) <= 500


@pytest.mark.parametrize("piece", ["=/", "+/", "@./", "/=", "a=", "=a/", "a.", "-a=/", "../", "/a", "a b/", "x=/ "])
def test_a_text_is_searched_for_paths_in_work_that_grows_with_its_length(piece: str) -> None:
    for times in (50, 5_000, 500_000):
        text = piece * times
        runs = list(runs_in(text))
        assert sum(map(len, runs)) <= min(len(text), MAX_READ)
        assert all(len(run) <= MAX_PATH for run in runs)
        assert len(list(paths_in(text))) <= len(runs)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("fix src/app.py, then lib.py.", ["src/app.py", "lib.py"]),
        ("in /srv/data/year=2024/x.csv:12 and ./run", ["/srv/data/year=2024/x.csv", "./run"]),
        ("see @notes.txt or --file=/srv/a-b/c/ (or name=list.json)", ["notes.txt", "/srv/a-b/c", "list.json"]),
        ("http://host.org/a.py, ann@host.org, ~/x.py, 3.5", []),
    ],
)
def test_paths_are_found_in_prose(text: str, paths: list[str]) -> None:
    assert list(paths_in(text)) == paths
