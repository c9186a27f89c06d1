"""The contract's configuration file, as settings and a driver."""

import json
from pathlib import Path
from typing import Any

import pytest

from parley.compat.organisation import OrgFile, driver_of, parse_orgfile, read_orgfile, settings_of
from parley.drivers.agentzero import AgentZeroDriver
from parley.drivers.agentzero.options import places_of
from parley.drivers.org import OrgDriver
from parley.errors import ConfigurationError
from parley.execution.driver import Driver

CONTRACT: dict[str, Any] = {
    "a2a_server": {
        "enabled": True,
        "host": "0.0.0.0",
        "port": 8200,
        "authentication": {"scheme": "none", "api_key": None},
        "agent_connection": {"method": "direct", "agent_zero_url": "http://localhost:5000"},
        "task_queue": {"max_concurrent": 1, "max_queued": 10, "task_timeout_seconds": 600},
        "salute_poll_interval_seconds": 2,
        "org_dir": "/a0/usr/organizations",
    }
}


def parsed(**fields: Any) -> OrgFile:
    return parse_orgfile(fields)[0]


def built(place: Path, **fields: Any) -> Driver:
    file = parsed(**fields)
    return driver_of(file, place, settings_of(file, place))


def test_the_contracts_own_file_is_understood_wrapped_and_flat(tmp_path: Path) -> None:
    found, unknown = parse_orgfile(CONTRACT)
    assert (found, unknown) == parse_orgfile(CONTRACT["a2a_server"])
    assert unknown == []
    settings = settings_of(found, tmp_path)
    assert (settings.host, settings.port, settings.auth, settings.log_requests) == ("0.0.0.0", 8200, "none", True)
    assert settings.data_dir == tmp_path / "a2a_data"
    driver = driver_of(found, tmp_path, settings)
    assert isinstance(driver, AgentZeroDriver)
    assert driver.options.organisation == "/a0/usr/organizations"
    limits = driver.agent.limits
    assert (limits.max_concurrent, limits.max_queued, limits.timeout_s) == (1, 10, 600)


def test_the_origins_spelling_is_understood_too(tmp_path: Path) -> None:
    found = parsed(
        agent_connection={"base_url": "http://zero:80", "api_key": "abcdef"}, reports_dir="r", roles_dir="o",
        plan_library_path="p.json", org_dir="orgs",
    )  # fmt: skip
    driver = driver_of(found, tmp_path, settings_of(found, tmp_path))
    assert isinstance(driver, AgentZeroDriver)
    places = places_of(driver.options)
    assert places is not None
    assert (places.reports_folder, places.roles_folder) == (tmp_path / "r", tmp_path / "o")
    assert places.library() == [tmp_path / "p.json"]
    assert found.agent_connection.agent_zero_url == "http://zero:80"


def test_fields_that_mean_nothing_are_named() -> None:
    _, unknown = parse_orgfile({"a2a_server": {"prot": 1, "_note": 2, "task_queue": {"max": 3}}, "beside": {}})
    assert unknown == ["beside", "prot", "task_queue.max"]


def test_without_a_connection_the_kernel_is_built_in(tmp_path: Path) -> None:
    settings = settings_of(OrgFile(), tmp_path)
    assert (settings.auth, settings.host) == ("local", "127.0.0.1")
    driver = driver_of(OrgFile(), tmp_path, settings)
    assert isinstance(driver, OrgDriver)
    assert driver.agent.name == "Software Development Organization"
    embedded = parsed(agent_connection={"method": "embedded", "agent_zero_url": "http://localhost:5000"})
    assert isinstance(driver_of(embedded, tmp_path, settings), OrgDriver)


def test_the_command_line_goes_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARLEY_PORT", "8300")
    monkeypatch.setenv("PARLEY_HOST", "127.0.0.2")
    settings = settings_of(parsed(port=8200, host="127.0.0.1"), tmp_path, port=8400, data_dir=None)
    assert (settings.port, settings.host) == (8400, "127.0.0.2")


def test_credentials_by_key_and_by_issuer(tmp_path: Path) -> None:
    keyed = settings_of(parsed(authentication={"scheme": "apiKey", "api_key": "s3cret"}), tmp_path)
    assert keyed.auth == "required"
    assert keyed.api_key is not None
    assert keyed.api_key.get_secret_value() == "s3cret"
    assert "s3cret" not in repr(keyed)
    said = {"scheme": "oauth2", "issuer": "https://id.example", "audience": "org"}
    settings = settings_of(parsed(authentication=said), tmp_path)
    assert (settings.auth, settings.oidc_issuer, settings.oidc_audience) == ("required", "https://id.example", "org")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"authentication": {"scheme": "basic"}}, "authentication.scheme: must be one of none, api_key, oauth"),
        ({"authentication": {"scheme": "oauth"}}, "needs authentication.issuer"),
        ({"authentication": {"scheme": "oauth", "issuer": "https://x"}}, "needs authentication.audience"),
        ({"agent_connection": {"method": "telepathy"}}, "agent_connection.method: must be one of direct, embedded"),
        (
            {"agent_connection": {"agent_zero_url": "zero"}},
            "agent_connection.agent_zero_url: must be an http or https URL",
        ),
        ({"port": "8200"}, "Expected `int | null`, got `str` - at `$.port`"),
        ({"port": 99999}, "port"),
        ({"org_dir": "nowhere"}, "org_dir: the folder does not exist"),
        ({"roots": ["nowhere"]}, "roots: the folder does not exist"),
        ({"agent_connection": {"method": "direct"}, "task_queue": {"max_concurrent": 2}}, "max_concurrent must be 1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        built(tmp_path, **fields)
    assert why in caught.value.message


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "half.json").write_text('{"port": ')
    (tmp_path / "list.json").write_text("[]")
    for name, why in (("half.json", "is not JSON"), ("list.json", "must be a JSON object"), ("no.json", "cannot be")):
        with pytest.raises(ConfigurationError, match=why):
            read_orgfile(tmp_path / name)
    (tmp_path / "a2a_config.json").write_text(json.dumps(CONTRACT))
    assert read_orgfile(tmp_path / "a2a_config.json")[0].port == 8200
