"""The profile file: which one is meant, and that nothing of it is lost."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from edge.tests.programs import run
from parley_edge.errors import BrokenProfiles, WrongUse
from parley_edge.storage import profiles
from parley_edge.storage.profiles import Profile, Profiles

Json = dict[str, Any]


def one(agent: str = "worker", base: str = "http://127.0.0.1:8200", **more: Any) -> Json:
    return {"api_base": base, "runtime_token": f"secret-{agent}", "agent_id": agent, "runtime_id": "r1", **more}


def known(active: str | None = None, **profiles: Json) -> Profiles:
    return Profiles({"active_profile": active, "profiles": profiles})


def write(home: Path, content: Json) -> Path:
    home.mkdir(mode=0o700, exist_ok=True)
    file = home / "runtime.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(content))
    return file


def test_the_one_named_comes_first_then_the_active_one_then_the_only_one() -> None:
    two = known("b", a=one("a"), b=one("b"))
    assert two.resolved("a")[0] == "a"
    assert two.resolved(None)[0] == "b"
    assert known(None, a=one("a")).resolved(None)[0] == "a"
    assert known("gone", a=one("a")).resolved(None)[0] == "a"


def test_none_is_chosen_where_several_could_be_meant() -> None:
    with pytest.raises(WrongUse, match="several") as raised:
        known(None, b=one("b"), a=one("a")).resolved(None)
    assert "a, b" in raised.value.hint
    with pytest.raises(WrongUse, match="no profile 'c'") as raised:
        known("a", a=one("a")).resolved("c")
    assert "a" in raised.value.hint
    with pytest.raises(WrongUse, match="no profile") as raised:
        known(None).resolved(None)
    assert "pair" in raised.value.hint


def test_an_unknown_member_survives_a_change() -> None:
    before = Profiles({"active_profile": "a", "profiles": {"a": one("a", note="mine")}, "theme": "dark"})
    after = before.with_profile("b", Profile("http://x", "t", "b", "r2")).with_active("a").without("b")
    assert after.raw == before.raw


def test_the_removed_profile_is_not_active_any_more() -> None:
    assert known("a", a=one("a"), b=one("b")).without("a").raw["active_profile"] is None


def test_a_pairing_finds_its_name() -> None:
    base = "http://127.0.0.1:8200"
    assert known().name_for(base, "worker") == "default"
    assert known(None, mine=one("worker")).name_for(base, "worker") == "mine"
    assert known(None, default=one("other")).name_for(base, "worker") == "worker"
    assert (
        known(None, default=one("worker", "http://elsewhere"), worker=one("x")).name_for(base, "worker") == "worker-2"
    )
    assert known(None, default=one("other")).name_for(base, "../up") == "up"


@pytest.mark.parametrize("broken", [{}, {"api_base": 1}, one(runtime_token=""), one(platform=[]), "x", None])
def test_a_broken_profile_is_named(broken: Any) -> None:
    with pytest.raises(BrokenProfiles, match="'a'"):
        known(None, a=broken).resolved("a")


def test_a_token_is_in_no_representation() -> None:
    profile = known(None, a=one("worker")).get("a")
    assert "secret-worker" not in repr(profile) + json.dumps(profile.shown())


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "a b", "x" * 65])
def test_a_profiles_name_is_a_plain_word(name: str) -> None:
    with pytest.raises(WrongUse):
        profiles.checked_name(name)


def test_a_change_that_fails_leaves_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(home, known("a", a=one("a")).raw)
    before = file.read_bytes()
    monkeypatch.setattr(os, "fsync", _full)
    with pytest.raises(BrokenProfiles, match="No space"):
        profiles.change(home, lambda known: known.without("a"))
    assert file.read_bytes() == before
    assert sorted(path.name for path in home.iterdir()) == ["runtime.json", "runtime.lock"]


def _full(handle: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_link_to_the_file_stays_a_link(home: Path, tmp_path: Path) -> None:
    file = write(home, known("a", a=one("a")).raw)
    real = tmp_path / "dotfiles.json"
    file.rename(real)
    file.symlink_to(real)
    profiles.change(home, lambda known: known.without("a"))
    assert file.is_symlink()
    assert json.loads(real.read_text())["profiles"] == {}


async def test_ambiguity_is_an_error_that_lists_them(home: Path) -> None:
    write(home, known(None, a=one("a"), b=one("b")).raw)
    for command in (("start",), ("status",)):
        done = await run(home, *command)
        assert done.code == 2
        assert "a, b" in done.err
        assert "--profile" in done.err


async def test_profiles_are_listed_chosen_and_removed(home: Path) -> None:
    write(home, known("a", a=one("first"), b=one("second"), c={"broken": True}).raw)
    listed = await run(home, "profiles", "list")
    assert [line[:3] for line in listed.out.splitlines()] == ["* a", "  b", "  c"]
    assert "lacks" in listed.out
    assert (await run(home, "profiles", "use", "b")).code == 0
    assert (await run(home, "profiles", "use", "z")).code == 2
    chosen = (await run(home, "profiles", "list", "--json")).json["profiles"]
    assert [one["profile"] for one in chosen if one["active"]] == ["b"]
    assert "secret" not in json.dumps(chosen)
    assert (await run(home, "profiles", "remove", "b")).code == 0
    assert (await run(home, "profiles", "remove", "c")).code == 0
    assert (await run(home, "profiles", "remove", "c")).code == 2
    assert [one["profile"] for one in (await run(home, "profiles", "list", "--json")).json["profiles"]] == ["a"]


async def test_a_broken_file_stops_every_command(home: Path) -> None:
    file = write(home, {})
    file.write_text("{")
    for command in (("start",), ("status",), ("profiles", "list"), ("profiles", "remove", "a")):
        assert (await run(home, *command)).code == 5
    assert file.read_text() == "{"
