"""A browser's session in its own cookie."""

from pathlib import Path

import pytest

from parley.errors import CredentialTooLong
from parley.security.secrets import MAX_CREDENTIAL, Secrets, Sessions, new_key


def test_a_cookie_opens_again_and_tells_nothing(tmp_path: Path) -> None:
    sessions = Sessions(Secrets(tmp_path / "secret.key"), 60)
    session, cookie = sessions.begin("parley_token")
    assert sessions.opened(cookie) == session
    assert session.credential == "parley_token"
    assert "parley_token" not in cookie
    for wrong in ("", "x", cookie[:-4] + "AAAA", cookie[1:], Sessions(Secrets(tmp_path / "other"), 60).begin()[1]):
        assert sessions.opened(wrong) is None


def test_a_cookie_is_too_old_one_day(tmp_path: Path) -> None:
    secrets = Secrets(tmp_path / "secret.key")
    cookie = Sessions(secrets, 60).begin()[1]
    assert Sessions(secrets, -1).opened(cookie) is None


def test_a_form_is_good_in_its_own_session_only(tmp_path: Path) -> None:
    sessions = Sessions(Secrets(tmp_path / "secret.key"), 60)
    ann, bob = sessions.begin("a")[0], sessions.begin("b")[0]
    assert sessions.is_csrf(ann, sessions.csrf(ann))
    assert not sessions.is_csrf(bob, sessions.csrf(ann))
    assert not sessions.is_csrf(ann, "")
    assert not sessions.is_csrf(ann, "ä")


def test_sessions_outlive_the_rotation_of_the_key(tmp_path: Path) -> None:
    file = tmp_path / "secret.key"
    before = Sessions(Secrets(file), 60)
    session, cookie = before.begin("a")
    file.write_text(f"{new_key()}\n{file.read_text()}")
    after = Sessions(Secrets(file), 60)
    assert after.opened(cookie) == session
    assert after.is_csrf(session, before.csrf(session))


def test_a_credential_that_no_cookie_holds_is_refused(tmp_path: Path) -> None:
    sessions = Sessions(Secrets(tmp_path / "secret.key"), 60)
    assert len(sessions.begin("x" * MAX_CREDENTIAL)[1]) < 3900
    with pytest.raises(CredentialTooLong):
        sessions.begin("x" * (MAX_CREDENTIAL + 1))
