"""Links that are good by themselves, for a while."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from parley.errors import LinkExpired, LinkRefused
from parley.security.secrets import Links, Secrets, new_key

NOW = 1_794_000_000_000


def parts(link: str) -> tuple[str, str, str, str]:
    split = urlsplit(link)
    asked = parse_qs(split.query)
    return split.path.rpartition("/")[2], asked["name"][0], asked["exp"][0], asked["sig"][0]


def links(path: Path, now: int = NOW, prefix: str = "/files/") -> Links:
    return Links(Secrets(path), prefix, lambda: now)


def test_a_link_is_good_until_it_expires_in_every_process(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    link = links(path).link("id", "a name.md", NOW + 60_000)
    assert link.startswith("/files/id?name=a+name.md&exp=1794000060&sig=")
    links(path, NOW + 59_999).check(*parts(link))
    for later in (60_000, 10**9):
        with pytest.raises(LinkExpired):
            links(path, NOW + later).check(*parts(link))


def test_a_link_that_was_changed_or_made_elsewhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    id_, name, expires, signature = parts(links(path).link("id", "name", NOW + 60_000))
    for changed in (
        ("ie", name, expires, signature), (id_, "namf", expires, signature), (id_, name, "1794000061", signature),
        (id_, name, expires, signature[:-1]), (id_, name, expires, ""), (id_, name, "", signature),
        (id_, name, expires, "ä"), ("idname", "", expires, signature), (id_, name, f" {expires}", signature),
    ):  # fmt: skip
        with pytest.raises(LinkRefused):
            links(path).check(*changed)
    with pytest.raises(LinkRefused):
        links(tmp_path / "other.key").check(id_, name, expires, signature)
    with pytest.raises(LinkRefused):
        links(path, prefix="/other/").check(id_, name, expires, signature)


def test_a_link_outlives_the_key_that_signed_it_while_its_line_is_there(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    old = parts(links(path).link("id", "name", NOW + 60_000))
    path.write_text(new_key() + "\n" + path.read_text())
    links(path).check(*old)
    new = parts(links(path).link("id", "name", NOW + 60_000))
    assert new[3] != old[3]
    path.write_text(path.read_text().splitlines()[0])
    links(path).check(*new)
    with pytest.raises(LinkRefused):
        links(path).check(*old)
